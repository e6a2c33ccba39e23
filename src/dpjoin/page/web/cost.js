// What it cost: the budget by purpose, planned and spent, and every charge in the ledger.

import { bdi, cut, el, section, table } from "./dom.js";
import { drawn, shares } from "./charts.js";
import { count, exactly, percent, shown } from "./numbers.js";

function byStage(stages) {
  return Object.entries(stages).map(([label, value]) => ({ label, value })).sort((a, b) => b.value - a.value);
}

function pictures(cost) {
  return Object.entries(cost.currencies).map(([currency, name]) => {
    const events = cost.events.filter((e) => e.currency === currency);
    if (!events.length) return null;
    const items = byStage(cost.stages[currency]);
    const whole = items.reduce((sum, i) => sum + i.value, 0);
    return [
      el("p", {}, el("strong", {}, `Spent, in ${name}`), `: ${count(events.length)} ${events.length === 1 ? "charge" : "charges"}.`),
      drawn((width) => shares(items, width, `Shares of ${name} by purpose`)),
      table(`Shares of ${name} by purpose`, [{ title: "purpose" }, { title: name, number: true }, { title: "share", number: true }],
        items.map((i) => [bdi(i.label), exactly(i.value), percent(i.value / whole)])),
    ];
  });
}

function planned(cost) {
  if (!cost.planned.length) return null;
  const items = cost.planned.map((s) => ({ label: s.name, value: s.share }));
  return [
    el("p", {}, el("strong", {}, "Planned"), ", before a table was opened. What a look finds decides how the rest is spent."),
    drawn((width) => shares(items, width, "The budget as it was planned")),
    table("The budget as it was planned", [{ title: "budget for" }, { title: "mechanism" }, { title: "share", number: true }],
      cost.planned.map((s) => [bdi(s.name), s.mechanism, percent(s.share)])),
  ];
}

function totals(cost) {
  const names = { rho: "rho", epsilon: "epsilon", laplace_epsilon: "epsilon of Laplace noise" };
  const spent = Object.entries(cost.totals).filter(([, v]) => v > 0).map(([key, v]) => `${names[key]} ${exactly(v)}`);
  const deltas = Object.entries(cost.deltas).filter(([, v]) => v > 0).map(([key, v]) => `${exactly(v)} ${key === "delta" ? "" : key}`.trim());
  return el("p", {}, `The ledger adds up, by ${cost.composition} composition, to ${spent.join(" and ") || "nothing"}`,
    deltas.length ? `, and of delta to ${deltas.join(" and ")}` : "",
    `. That is within epsilon ${exactly(cost.budget.epsilon)} and delta ${exactly(cost.budget.delta)}, which is checked whenever the folder is opened.`);
}

export function costSection(data) {
  const { cost } = data;
  const whole = new Map();
  for (const e of cost.events) whole.set(e.currency, (whole.get(e.currency) || 0) + e.cost);
  const parts = cost.events.some((e) => e.part);
  const columns = [{ title: "number" }, { title: "what for" }, { title: "mechanism" }, { title: "share", number: true }, { title: "noise (deviation)", number: true },
    { title: `one ${data.about.unit} moves it by`, number: true }, { title: "noisy result", number: true }];
  const rows = cost.events.map((e, i) => [
    count(i + 1), bdi(cut(e.purpose, 200)), e.mechanism, e.cost ? percent(e.cost / whole.get(e.currency)) : "paid above",
    e.deviation === null ? "" : exactly(e.deviation), exactly(e.moves), e.noisy === null ? "many numbers" : shown(e.noisy),
  ]);
  return section("cost", "What it cost",
    "Every look at a private table is a charge with noise, written down before the noise was drawn. The ledger holds noisy results, never exact ones.",
    planned(cost), pictures(cost), totals(cost),
    parts ? el("p", { class: "note" }, `Charges about parts of the rows are listed one by one; one ${data.about.unit} pays only for the parts that it is in, and the picture shows what it pays at most.`) : null,
    el("h3", {}, "The ledger"),
    table(`All ${cost.events.length} charges, in order`, columns, rows, { open: cost.events.length <= 60 }));
}
