// The page of a plan: no row was read.

import { bdi, cut, el, section, table } from "./dom.js";
import { drawn, lines, shares } from "./charts.js";
import { count, exactly, percent, shown } from "./numbers.js";
import { diagram } from "./diagram.js";

function planHeader({ plan, budget }) {
  const one = (value, label) => el("div", { class: "figure" }, el("dt", {}, label), el("dd", {}, value));
  return el("header", {},
    el("p", { class: "kicker" }, "Plan: no row was read"),
    el("h1", {}, bdi(cut(plan.join, 200))),
    el("p", { class: "summary" }, `What one release of this join would do, for ${plan.protects}. Method ${plan.method}: ${plan.why}.`),
    el("dl", { class: "figures" }, one(exactly(budget.epsilon), "epsilon"), one(exactly(budget.delta), "delta"),
      one(count(plan.queries), "questions"), one(count(plan.attributes.length), "attributes"), one(plan.method, "method")));
}

function joinSection({ plan, tables, edges }) {
  const rows = tables.map((t) => [bdi(t.name), t.private ? "private" : "public", bdi(cut(t.attributes.map((a) => a.name).join(", "), 2000)),
    bdi(edges.filter((e) => e.from === t.name || e.to === t.name).map((e) => `${e.from === t.name ? e.to : e.from} on ${e.on.join(", ")}`).join("; "))]);
  return section("join", "The tables", `Kind of join: ${plan.join_class}. Attributes of one name join.`,
    el("figure", {}, diagram(tables, edges)),
    table("Tables and what joins them", [{ title: "table" }, { title: "is" }, { title: "attributes" }, { title: "joined with" }], rows));
}

function budgetSection({ plan }) {
  const items = plan.stages.map((s) => ({ label: s.name, value: s.share }));
  return section("budget", "Where the budget goes", null,
    drawn((width) => shares(items, width, "Shares of the budget")),
    table("Shares of the budget", [{ title: "budget for" }, { title: "share", number: true }, { title: "mechanism" }, { title: "why" }],
      plan.stages.map((s) => [bdi(s.name), percent(s.share), s.mechanism, s.note]), { open: true }));
}

function curve(points, key, label) {
  return { label, items: points.map((p) => ({ value: p[key], bar: null })) };
}

function errorSection({ plan, budget, by_degree, by_epsilon, join_size }) {
  if (!by_epsilon.length) {
    return section("error", "What error to expect", null, el("p", {}, "Of this method the plan cannot tell before the tables are read."));
  }
  const degrees = by_degree.filter((p) => p.cell);
  const series = by_epsilon.map((s) => ({ ...s, points: s.points.filter((p) => p.cell) })).filter((s) => s.points.length);
  const same = series.every((s) => s.points.length === series[0].points.length);
  const some = same ? series : series.slice(-1);
  const clipped = plan.method === "clipped";
  const named = (s) => (by_degree.length ? `${clipped ? "clipped at" : "degree"} ${count(s.degree)}` : "each count");
  const what = clipped ? "limit of join results" : "largest degree";
  const share = (v) => (join_size ? [percent(v / join_size)] : []);
  const last = join_size ? [{ title: "of the join", number: true }] : [];
  return section("error", "What error to expect",
    "Half-widths that cover 90 %, before the fit, which usually makes counts two to four times better.",
    degrees.length ? [
      el("h3", {}, `By the ${what}`),
      el("p", {}, (clipped ? "Noisy numbers decide where the join results of each owner are clipped, so the plan shows the noise for each case. "
        : "How many rows of one table share one join value at most is private, so the plan shows the noise for each case. ") +
        `At epsilon ${exactly(budget.epsilon)}:`),
      drawn((width) => lines(degrees.map((p) => count(p.at)), [curve(degrees, "cell", "each count ±"), curve(degrees, "count", "join size ±")], width,
        `Noise by ${what}`, { logarithmic: true })),
      table(`Noise by ${what}`, [{ title: what, number: true }, { title: "sensitivity", number: true }, { title: "join size ±", number: true }, { title: "each count ±", number: true }, ...last],
        degrees.map((p) => [count(p.at), count(p.sensitivity), shown(p.count), shown(p.cell), ...share(p.cell)])),
    ] : null,
    el("h3", {}, "By epsilon"),
    el("p", {}, "Less noise costs more epsilon: a smaller epsilon promises more. The plan has ", el("strong", {}, `epsilon ${exactly(budget.epsilon)}`), "."),
    drawn((width) => lines(some[0].points.map((p) => exactly(p.at)), some.map((s) => curve(s.points, "cell", named(s))), width, "Noise of each count by epsilon", { logarithmic: true })),
    table("Noise of each count by epsilon", [{ title: "epsilon", number: true }, ...some.map((s) => ({ title: `${named(s)} ±`, number: true }))],
      some[0].points.map((p, i) => [exactly(p.at), ...some.map((s) => shown(s.points[i].cell))])));
}

function askedSection({ plan }) {
  const domains = plan.domains && plan.domains.length;
  return section("asked", "What is asked", `${count(plan.queries)} questions over ${count(plan.cells)} cells. The model is ${plan.model}.`,
    table("Groups of questions", [{ title: "group" }, { title: "questions", number: true }, { title: "cells", number: true }],
      plan.groups.map((g) => [bdi(cut(g.name, 300)), count(g.queries), count(g.cells)]), { open: plan.groups.length <= 40 }),
    plan.buckets.length ? table("Parts that may come about", [{ title: "noisy degree" }, { title: "sensitivity", number: true }, { title: "size ±", number: true }, { title: "each count ±", number: true }],
      plan.buckets.map((b) => [b.degrees, count(b.sensitivity), shown(b.count), shown(b.cell)])) : null,
    domains ? table("Domains that are learned", Object.keys(plan.domains[0]).map((title) => ({ title: title.replaceAll("_", " ") })),
      plan.domains.map((d) => Object.values(d).map((v) => (typeof v === "number" ? exactly(v) : bdi(String(v)))))) : null,
    el("h3", {}, "Notes"), el("ul", {}, plan.notes.map((n) => el("li", {}, bdi(cut(n, 2000))))));
}

function startPlan() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  page.replaceChildren(planHeader(data), joinSection(data), budgetSection(data), errorSection(data), askedSection(data),
    el("footer", {}, el("p", {}, "Worked out from the spec alone. This page asks no network and runs no code but its own.")));
  document.documentElement.dataset.ready = "true";
}

startPlan();
