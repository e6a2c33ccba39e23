// How to load, to ask and to cite a release, and what made it.

import { bdi, copyable, cut, el, section, table } from "./dom.js";
import { count } from "./numbers.js";

function examples(about) {
  const file = about.file;
  return [
    ["pandas", `import pandas as pd\n\nrows = pd.read_parquet("${file}")`],
    ["Polars", `import polars as pl\n\nrows = pl.read_parquet("${file}")`],
    ["DuckDB", `FROM '${file}' LIMIT 10;`],
    ["R", `library(arrow)\n\nrows <- read_parquet("${file}")`],
    ["With error bars", `import dpjoin as dj  # pip install dpjoin\n\nrelease = dj.load("FOLDER")\nrelease.ask("SELECT COUNT(*) FROM joined")`],
  ];
}

function citation(data) {
  const { about } = data;
  const hash = data.files[about.file];
  return `${about.title}. Synthetic data set, (${about.epsilon}, ${about.delta})-differentially private for ${about.neighbours}. ` +
    `Made with dpjoin ${about.version}, method ${about.method}.` + (hash ? ` SHA-256 of ${about.file}: ${hash}.` : "");
}

export function useSection(data) {
  const { about } = data;
  return section("use", "Use it", "Open the rows in whatever reads Parquet. Only the model knows error bars: ask it with dpjoin.",
    el("div", { class: "examples" }, examples(about).map(([name, code]) => el("div", {}, el("h3", {}, name), copyable(code, `Load with ${name}`).box))),
    about.each_stands_for > 1.0001 ? el("p", {}, `Each row stands for ${count(about.each_stands_for)} join results.`) : null,
    el("h3", {}, "Cite it"), copyable(citation(data), "Citation").box);
}

// Facts as the manifest has them: nested ones as they are.
function written(value) {
  if (value === null || typeof value !== "object") return String(value);
  if (Array.isArray(value)) return value.map(written).join("; ");
  return Object.entries(value).map(([k, v]) => `${k}: ${written(v)}`).join(", ");
}

export function detailSection(data) {
  const { about, files } = data;
  const facts = Object.entries(about.facts).filter(([key]) => !["planned", "warnings"].includes(key));
  const hashes = Object.entries(files);
  const kinds = data.attributes.map((a) => [bdi(cut(a.name, 300)), a.kind, count(a.size), bdi(cut(a.tables.join(", "), 200))]);
  return section("details", "Details", null,
    el("p", {}, `dpjoin ${about.version}, folder format ${about.format}, method ${about.method}, profile ${about.profile}.`),
    table("Attributes", [{ title: "attribute" }, { title: "kind" }, { title: "values", number: true }, { title: "of" }], kinds),
    table("Public facts of the run", [{ title: "fact" }, { title: "value" }], facts.map(([key, value]) => [key.replaceAll("_", " "), bdi(cut(written(value), 4000))])),
    hashes.length ? [el("h3", {}, "Hashes"), el("p", {}, "SHA-256 of the other files. The manifest has the hash of this page, so neither can hold the other's."),
      table("SHA-256 of the files", [{ title: "file" }, { title: "SHA-256" }], hashes.map(([name, hash]) => [name, el("code", { class: "hash" }, hash)]))] : null);
}
