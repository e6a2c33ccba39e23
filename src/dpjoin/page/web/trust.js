// How good: bars by group, how clear each pair is, and join sizes under the limits that were tried.

import { bdi, cut, el, section, svg, table } from "./dom.js";
import { bars, drawn, picture, powers, text } from "./charts.js";
import { count, exactly, short, shown, withBar } from "./numbers.js";

export const GRADES = [
  [10, "clear", "bars are at most a tenth of the counts"],
  [3, "good", "bars are at most a third of the counts"],
  [1, "rough", "bars are smaller than the counts"],
  [0, "noise", "bars are as large as the counts, or larger"],
];

// All counts of a marginal over all its bars; null where no bar is known.
export function clearness(known, marginal) {
  const { counts, bars } = known.arrays(marginal);
  let signal = 0, noise = 0;
  for (let i = 0; i < counts.length; i++) {
    signal += Math.abs(counts[i]);
    noise += bars[i];
  }
  return Number.isNaN(noise) ? null : noise === 0 ? Infinity : signal / noise;
}

function gradeOf(ratio) {
  return ratio === null ? 4 : GRADES.findIndex(([least]) => ratio >= least);
}

const within = (group) => `${shown(group.median)} to ${shown(group.largest)}`;

function groups(trust) {
  const known = trust.groups.filter((g) => g.median !== null);
  const lines = trust.groups.map((g) => [
    bdi(cut(g.name, 300)), count(g.queries), g.looked ? shown(g.median) : "not on this page", g.looked ? shown(g.largest) : "",
  ]);
  const columns = [{ title: "group of questions" }, { title: "questions", number: true }, { title: "median ±", number: true }, { title: "largest ±", number: true }];
  const worst = [...known].sort((a, b) => b.largest - a.largest).slice(0, 25);
  const chart = (width) => {
    const left = Math.min(270, width * 0.36), right = width < 600 ? 20 : 12 + 7.2 * Math.max(...worst.map((g) => within(g).length)), row = 24, top = 8;
    // Sums may be thousands of times as large as counts.
    const ends = worst.flatMap((g) => [g.median, g.largest]).filter((v) => v > 0);
    const [low, high] = ends.length ? [Math.log10(Math.min(...ends)), Math.log10(Math.max(...ends))] : [0, 1];
    const [from, to] = [Math.floor(low), Math.max(Math.floor(low) + 1, Math.ceil(high))];
    const x = (v) => left + ((Math.log10(Math.max(v, 10 ** from)) - from) / (to - from)) * (width - left - right);
    const marks = powers(from, to, width - left - right);
    return picture(width, top + row * worst.length + 26, "Median and largest error bar of each group of questions",
      marks.map((m) => [
        svg("line", { class: "grid", x1: x(m), x2: x(m), y1: top, y2: top + row * worst.length }),
        text(x(m), top + row * worst.length + 18, short(m), { class: "tick", "text-anchor": "middle" }),
      ]),
      worst.map((g, i) => {
        const y = top + row * (i + 0.5);
        return svg("g", { class: "item" },
          text(left - 12, y + 4.5, cut(g.name, Math.floor((left - 12) / 7.4)), { class: "label", "text-anchor": "end", full: g.name }),
          svg("line", { class: "span", x1: x(g.median), x2: x(g.largest), y1: y, y2: y }),
          svg("circle", { class: "dot series-0", cx: x(g.median), cy: y, r: 4.5 }),
          svg("rect", { class: "end", x: x(g.largest) - 1.5, y: y - 6, width: 3, height: 12 }),
          width >= 600 && text(width, y + 4.5, within(g), { class: "value", "text-anchor": "end" }));
      }));
  };
  return [
    el("h3", {}, "Expected error by group of questions"),
    el("p", {}, "A count is off by less than its bar about nine times in ten. The dot is the median bar of a group, the stroke its largest" +
      (worst.length < known.length ? `. Of ${known.length} groups, those with the ${worst.length} largest bars.` : ".")),
    worst.length ? drawn(chart) : null,
    table("Error bars by group of questions, in join results", columns, lines),
  ];
}

function map(known, complete, choose) {
  const n = known.attributes.length;
  if (n < 2) return null;
  const pairs = [...known.marginals.values()].filter((m) => m.scope.length === 2).map((m) => {
    const [a, b] = [...m.scope].sort((p, q) => p - q);
    return { a, b, ratio: clearness(known, m) };
  });
  const name = (i) => known.attributes[i].name;
  if (complete) {
    // What is not among the pairs was never measured together.
    const here = new Set(pairs.map((p) => `${p.a} ${p.b}`));
    for (let b = 1; b < n; b++) for (let a = 0; a < b; a++) if (!here.has(`${a} ${b}`)) pairs.push({ a, b, ratio: null });
  }
  const said = el("p", { class: "note", role: "status" }, "Move over the map, or see the table. A click shows the pair above.");
  const found = new Map(pairs.map((p) => [`${p.a} ${p.b}`, p]));
  const make = (width) => {
    const left = n > 60 ? 24 : Math.min(150, width * 0.3), top = 8;
    const each = Math.min(64, (width - left - 20) / n), tall = Math.min(each, n > 14 ? each : 34), gap = Math.min(1, each / 6);
    const height = top + tall * n + (n > 60 ? 10 : 24);
    const paths = ["", "", "", "", ""];
    for (const p of pairs) paths[gradeOf(p.ratio)] += `M${left + each * p.a + gap},${top + tall * p.b + gap}h${each - 2 * gap}v${tall - 2 * gap}h${2 * gap - each}z`;
    const fits = each >= 30;
    const chart = picture(width, height, "How clear the counts of each pair of attributes are",
      paths.map((d, k) => d && svg("path", { class: `grade grade-${k}`, d })),
      fits && pairs.map((p) => text(left + each * (p.a + 0.5), top + tall * (p.b + 0.5) + 4, p.ratio === null ? "?" : shortRatio(p.ratio), { class: `grade-text grade-${gradeOf(p.ratio)}`, "text-anchor": "middle" })),
      n <= 60 && tall >= 9 && known.attributes.map((a, i) => text(left - 8, top + tall * (i + 0.5) + 4, cut(a.name, Math.floor(left / 8)), { class: tall < 12 ? "tick tiny" : "label", "text-anchor": "end", full: a.name })),
      n <= 14 && known.attributes.slice(0, -1).map((a, i) => text(left + each * (i + 0.5), height - 6, cut(a.name, Math.floor(each / 7.2)), { class: "tick", "text-anchor": "middle", full: a.name })));
    const under = (event) => {
      const box = chart.getBoundingClientRect();
      const scale = width / box.width;
      const a = Math.floor(((event.clientX - box.left) * scale - left) / each), b = Math.floor(((event.clientY - box.top) * scale - top) / tall);
      return found.get(`${a} ${b}`);
    };
    chart.addEventListener("mousemove", (event) => {
      const p = under(event);
      if (p) said.replaceChildren(bdi(cut(name(p.a), 60)), " and ", bdi(cut(name(p.b), 60)), ": ", told(p.ratio));
    });
    chart.addEventListener("click", (event) => {
      const p = under(event);
      if (p) choose(p.a, p.b);
    });
    return chart;
  };
  const legend = el("ul", { class: "legend" }, [...GRADES.map(([least, word, why], k) => [k, least ? `${word}: ${least} or more, ${why}` : `${word}: ${why}`]), [4, "?: never measured together"]]
    .map(([k, words]) => el("li", {}, svg("svg", { width: 14, height: 14, "aria-hidden": "true" }, svg("rect", { class: `grade grade-${k}`, width: 14, height: 14 })), " ", words)));
  const missing = (n * (n - 1)) / 2 - pairs.length;
  const unknown = pairs.filter((p) => p.ratio === null).length;
  const sortedPairs = [...pairs].sort((p, q) => (q.ratio ?? -1) - (p.ratio ?? -1));
  return [
    el("h3", {}, "Which pairs can be trusted"),
    el("p", {}, "Signal to noise: the counts of a pair, added up, over their error bars, added up."),
    legend,
    drawn(make, { class: "map" }), said,
    unknown ? el("p", { class: "note" }, `${count(unknown)} of ${count((n * (n - 1)) / 2)} pairs were never measured together: their counts have no bar.`) : null,
    missing ? el("p", { class: "note" }, `${count(missing)} more pairs are not on this page; dpjoin answer has them.`) : null,
    table("Signal to noise of each pair", [{ title: "attribute" }, { title: "and" }, { title: "signal to noise", number: true }, { title: "in a word" }],
      sortedPairs.filter((p) => n <= 20 || p.ratio !== null).map((p) => [bdi(name(p.a)), bdi(name(p.b)), p.ratio === null ? "?" : shortRatio(p.ratio), p.ratio === null ? "not known" : GRADES[gradeOf(p.ratio)][1]])),
  ];
}

function shortRatio(ratio) {
  return ratio >= 1000 ? "1000+" : ratio >= 10 ? count(ratio) : shown(Math.floor(ratio * 10) / 10);
}

function told(ratio) {
  return ratio === null ? "never measured together" : `signal to noise ${shortRatio(ratio)}, ${GRADES[gradeOf(ratio)][1]}`;
}

function limits(data) {
  const { trust, about } = data;
  const rows = trust.limits;
  const facts = about.facts;
  const moved = `One ${about.unit} moves what was measured by at most ${exactly(facts.sensitivity_bound)}: the noise hides as much.`;
  const items = [...rows].sort((a, b) => b.moves - a.moves).map((e) => ({ label: `≤ ${exactly(Number(e.moves.toPrecision(3)))}`, value: e.noisy, bar: e.bar }));
  return [
    el("h3", {}, "What caps and clipping cut"),
    el("p", {}, facts.strategy ? `${facts.strategy[0].toUpperCase()}${facts.strategy.slice(1)}. ` : "", Number.isFinite(facts.sensitivity_bound) ? moved : ""),
    items.length > 1 ? [
      el("p", {}, `The join as it was counted, with noise, when one ${about.unit} may move the size by so much at most. Where sizes stop growing, a cap cuts hardly anything, but for few with very many that noise hides.`),
      drawn((width) => bars(items, width, "Noisy join sizes under limits")),
      table("Noisy join sizes under limits", [{ title: `moved by one ${about.unit}` }, { title: "noisy size", number: true }, { title: "±\u00a090\u00a0%", number: true }],
        items.map((i) => [i.label, shown(i.value, i.bar), shown(i.bar)])),
    ] : null,
  ];
}

// How many rows of each private table lie within the domains, where that was counted.
function tableRows({ facts }) {
  const rows = Object.entries(facts.rows || {});
  if (!rows.length) return null;
  return [el("h3", {}, "Rows of each private table"),
    table("Rows of each private table within the domains", [{ title: "table" }, { title: "rows", number: true }, { title: "±\u00a090\u00a0%", number: true }],
      rows.map(([name, r]) => [bdi(cut(name, 200)), count(r.noisy), count(r.bar)]), { open: true })];
}

export function trustSection(data, known, choose) {
  const [size, bar] = data.about.size;
  return section("trust", "How good is it", null,
    el("p", { class: "lead" }, "The join has ", el("strong", {}, withBar(size, bar)), " results. Bars are part of the release: they come from the noise, never from the private rows."),
    tableRows(data.about), map(known, data.explorer.complete, choose), groups(data.trust), limits(data));
}
