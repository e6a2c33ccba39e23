// Two releases or plans side by side.

import { bdi, cut, el, section, svg, table } from "./dom.js";
import { drawn, picture, powers, shares, text } from "./charts.js";
import { percent, short, shown } from "./numbers.js";

function facts({ a, b, facts: rows }) {
  return section("facts", "What each says", "What differs is bold.",
    table("What each says", [{ title: "what" }, { title: bdi(a.name) }, { title: bdi(b.name) }],
      rows.map(([what, one, other]) => [what, ...[one, other].map((said) => el(one && other && one !== other ? "strong" : "span", {}, bdi(cut(said, 2000))))]), { open: true }));
}

function errors({ a, b, groups }) {
  const known = groups.filter(([, x, y]) => x !== null && y !== null);
  if (!known.length) return null;
  const ratio = ([, x, y]) => (x > 0 ? y / x : null);
  const worst = [...known].filter((g) => ratio(g)).sort((p, q) => Math.abs(Math.log(ratio(q))) - Math.abs(Math.log(ratio(p)))).slice(0, 30);
  const ends = worst.flatMap(([, x, y]) => [x, y]).filter((v) => v > 0);
  if (!ends.length) return null;
  const from = Math.floor(Math.log10(Math.min(...ends))), to = Math.max(from + 1, Math.ceil(Math.log10(Math.max(...ends))));
  const chart = (width) => {
    const left = Math.min(270, width * 0.36), right = Math.min(90, width * 0.2), row = 24, top = 30, half = width / 2;
    const x = (v) => left + ((Math.log10(Math.max(v, 10 ** from)) - from) / (to - from)) * (width - left - right);
    const marks = powers(from, to, width - left - right);
    const bottom = top + row * worst.length;
    return picture(width, bottom + 24, "Median error bar of each group of questions, of both",
      svg("circle", { class: "dot series-0", cx: 8, cy: 10, r: 5 }), text(20, 14.5, cut(a.name, Math.floor(half / 8) - 3), { class: "label", full: a.name }),
      svg("path", { class: "dot series-1", d: `M${half + 8},4L${half + 14},10L${half + 8},16L${half + 2},10Z` }),
      text(half + 20, 14.5, cut(b.name, Math.floor(half / 8) - 3), { class: "label", full: b.name }),
      marks.map((m) => [svg("line", { class: "grid", x1: x(m), x2: x(m), y1: top, y2: bottom }), text(x(m), bottom + 17, short(m), { class: "tick", "text-anchor": "middle" })]),
      worst.map(([name, one, other], i) => {
        const y = top + row * (i + 0.5), at = x(other);
        return svg("g", { class: "item" },
          text(left - 12, y + 4.5, cut(name, Math.floor((left - 12) / 7.4)), { class: "label", "text-anchor": "end", full: name }),
          svg("line", { class: "span", x1: x(one), x2: at, y1: y, y2: y }),
          svg("circle", { class: "dot series-0", cx: x(one), cy: y, r: 5 }),
          svg("path", { class: "dot series-1", d: `M${at},${y - 6}L${at + 6},${y}L${at},${y + 6}L${at - 6},${y}Z` }),
          text(width, y + 4.5, `× ${shown(other / one)}`, { class: "value", "text-anchor": "end" }));
      }));
  };
  return section("errors", "How good each is", "Median error bars of the groups of questions that both answer. Left is better.",
    drawn(chart),
    table("Median error bars by group of questions", [{ title: "group" }, { title: bdi(a.name), number: true }, { title: bdi(b.name), number: true }, { title: "ratio", number: true }],
      groups.map((g) => [bdi(cut(g[0], 300)), shown(g[1]), shown(g[2]), g[1] > 0 && g[2] !== null ? shown(g[2] / g[1]) : "?"])));
}

function budgets(sides) {
  const told = sides.filter((s) => Object.keys(s.shares).length);
  if (!told.length) return null;
  return section("budgets", "Where the budget goes", null, told.map((s) => {
    const items = Object.entries(s.shares).map(([label, value]) => ({ label, value }));
    return [el("h3", {}, bdi(s.name)), drawn((width) => shares(items, width, `Shares of the budget of ${cut(s.name, 60)}`)),
      table(`Shares of the budget of ${cut(s.name, 60)}`, [{ title: "budget for" }, { title: "share", number: true }], items.map((i) => [bdi(i.label), percent(i.value)]))];
  }));
}

function startComparison() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const header = el("header", {}, el("p", { class: "kicker" }, "Side by side"),
    el("h1", {}, bdi(cut(data.a.name, 80)), " and ", bdi(cut(data.b.name, 80))),
    el("p", { class: "summary" }, `${data.a.kind === data.b.kind ? `Two ${data.a.kind}s` : `A ${data.a.kind} and a ${data.b.kind}`}. Everything here is public.`));
  document.getElementById("page").replaceChildren(header, ...[facts(data), errors(data), budgets([data.a, data.b])].filter(Boolean));
  document.documentElement.dataset.ready = "true";
}

startComparison();
