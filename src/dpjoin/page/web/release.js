// The page of a release.

import { bdi, cut, el, section } from "./dom.js";
import { count, exactly, withBar } from "./numbers.js";
import { opened } from "./select.js";
import { explorer } from "./explorer.js";
import { trustSection } from "./trust.js";
import { costSection } from "./cost.js";
import { detailSection, useSection } from "./use.js";

function listed(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

function figures(about) {
  const one = (value, label) => el("div", { class: "figure" }, el("dt", {}, label), el("dd", {}, value));
  return el("dl", { class: "figures" },
    one(withBar(...about.size), "results of the join"),
    one(count(about.rows), "synthetic rows"),
    one(exactly(about.epsilon), "epsilon"),
    one(exactly(about.delta), "delta"),
    one(bdi(cut(about.unit, 40)), "protected"));
}

function header(about) {
  const each = about.each_stands_for > 1.0001 ? `, each standing for ${count(about.each_stands_for)} join results,` : "";
  const open = about.public.length ? ` (${about.public.join(", ")} ${about.public.length === 1 ? "was" : "were"} public.)` : "";
  return el("header", {},
    el("p", { class: "kicker" }, "Differentially private release"),
    el("h1", {}, bdi(cut(about.title, 200))),
    el("p", { class: "summary" },
      `This folder holds ${count(about.rows)} made-up rows${each} that follow the join of ${cut(listed(about.tables), 300)}, and a model that answers questions about that join with error bars. ` +
      `Whether or not the tables held ${about.unit === "row" ? "any one row" : `the rows of any one ${cut(about.unit, 60)}`} makes hardly a difference to anything in it.${cut(open, 300)}`),
    figures(about),
    about.facts.warnings ? el("aside", { class: "warnings", "aria-label": "What to look at" }, el("h2", {}, "Look at this first"),
      el("ul", {}, about.facts.warnings.map((w) => el("li", {}, bdi(cut(w, 2000)))))) : null);
}

function promise(about) {
  const factor = exactly(Number(Math.exp(about.epsilon).toPrecision(3)));
  const chance = about.delta > 0 ? `, apart from a chance of about one in ${count(Number((1 / about.delta).toPrecision(2)))}` : "";
  return section("promise", "What is promised", null,
    el("div", { class: "columns" },
      el("div", {},
        el("h3", {}, "The guarantee"),
        el("p", {}, `Take two worlds that differ by ${about.neighbours}. Whatever somebody concludes from this folder, it is at most ${factor} times as likely in one world as in the other${chance}. `,
          `That holds for anybody, with any knowledge and any computer, now and later, and whatever is done with the folder: copying it and asking it cost nothing.`),
        el("p", {}, `In short: (${exactly(about.epsilon)}, ${exactly(about.delta)})-differential privacy; the unit is one ${cut(about.unit, 60)}.`),
        about.also_protects ? el("p", {}, `At the same noise it also protects ${about.also_protects}.`) : null,
        el("h3", {}, "What it rests on"),
        el("ul", {}, about.assumptions.map((a) => el("li", {}, bdi(cut(a, 2000)))))),
      el("div", {},
        el("h3", {}, "What is not promised"),
        el("ul", {},
          about.unit === "row" ? el("li", {}, "A person with many rows is protected less: every further row weakens the guarantee by another factor.") : null,
          el("li", {}, "What is true of people in general stays visible. If a habit shows in the data, it can be concluded about anybody who has it."),
          el("li", {}, "A count is not exact, and a row is nobody's. Noise hides what few rows say."),
          about.public.length ? el("li", {}, `Public tables (${cut(about.public.join(", "), 200)}) are not protected at all.`) : null,
          el("li", {}, "Other releases of the same tables add up with this one.")))));
}

function navigation(explored) {
  const places = { promise: "Promise", explore: "Explore", trust: "How good", cost: "Cost", use: "Use it", details: "Details" };
  return el("nav", { "aria-label": "Sections" }, el("ul", {}, Object.entries(places).filter(([id]) => explored || id !== "explore").map(([id, name]) => el("li", {}, el("a", { href: `#${id}` }, name)))));
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const known = opened(data);
  const page = document.getElementById("page");
  page.replaceChildren(header(data.about), promise(data.about));
  page.before(navigation(known.attributes.length > 0));
  let choose = () => {};
  if (known.attributes.length) {
    const shown = explorer(known);
    page.append(shown.made);
    choose = (first, second) => {
      shown.choose(first, second);
      document.getElementById("explore").scrollIntoView();
    };
  }
  page.append(trustSection(data, known, choose), costSection(data), useSection(data), detailSection(data));
  page.append(el("footer", {}, el("p", {}, `Made with dpjoin ${data.about.version}. This page asks no network and runs no code but its own.`)));
  // Tables that are closed would be missing on paper.
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const d of document.querySelectorAll("details:not([open])")) if (d.querySelectorAll("tr").length <= 40) { d.open = true; closed.push(d); }
  });
  addEventListener("afterprint", () => { for (const d of closed.splice(0)) d.open = false; });
  document.documentElement.dataset.ready = "true";
}

start();
