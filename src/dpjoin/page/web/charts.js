// Charts as SVG: bars, lines and heat maps with error bars, stacked shares. Colours are in charts.css.

import { cut, el, svg } from "./dom.js";
import { percent, short, shown, ticks, withBar } from "./numbers.js";

const TEXT = 13;

// A picture as wide as the page has room for, so that it can be read; drawn anew when that changes.
export function drawn(make, attributes = {}) {
  const room = (wide) => Math.max(300, Math.min(960, wide));
  let width = room(document.getElementById("page").clientWidth - 48);
  const figure = el("figure", attributes, make(width));
  new ResizeObserver(() => {
    if (!figure.clientWidth || Math.abs(room(figure.clientWidth) - width) <= 4) return;
    width = room(figure.clientWidth);
    figure.replaceChildren(make(width));
  }).observe(figure);
  return figure;
}

export function picture(width, height, label, ...children) {
  const box = { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label };
  return svg("svg", box, children);
}

export function text(x, y, content, more = {}) {
  const { full, ...attributes } = more;
  return svg("text", { x, y, ...attributes }, content, full && full !== content && svg("title", {}, full));
}

function whisker(x1, y1, x2, y2) {
  const [dx, dy] = x1 === x2 ? [4, 0] : [0, 4];
  return [
    svg("line", { class: "bar-line", x1, y1, x2, y2 }),
    svg("path", { class: "bar-line", d: `M${x1 - dx},${y1 - dy}L${x1 + dx},${y1 + dy}M${x2 - dx},${y2 - dy}L${x2 + dx},${y2 + dy}` }),
  ];
}

function reach(items) {
  const ends = items.flatMap((i) => [i.value - (i.bar || 0), i.value + (i.bar || 0)]).filter(Number.isFinite);
  const low = Math.min(0, ...ends), high = Math.max(0, ...ends);
  return high > low ? [low, high] : [0, 1];
}

// Powers of ten between two exponents: as many as have room to be written.
export function powers(from, to, wide) {
  const every = Math.ceil((44 * (to - from)) / wide);
  return Array.from({ length: Math.floor((to - from) / every) + 1 }, (_, i) => 10 ** (from + i * every));
}

// Names to the left of a chart, cut to the room that they may take, and that room.
function namesLeft(labels, most, room) {
  const names = labels.map((l) => cut(l, Math.min(most, Math.floor((room - 16) / 7.4))));
  return [names, Math.min(room, 16 + 7.4 * Math.max(...names.map((n) => n.length), 3))];
}

// Horizontal bars, one for each { label, value, bar }; a bar of null is not known, which is said.
export function bars(items, width, label) {
  const [names, left] = namesLeft(items.map((i) => i.label), 30, width * (width < 600 ? 0.27 : 0.34));
  const numbers = items.map((i) => withBar(i.value, i.bar));
  const right = Math.min(width * 0.45, 14 + 7.2 * Math.max(...numbers.map((n) => n.length)));
  const row = 28, top = 6, height = top + row * items.length + 26;
  const [low, high] = reach(items);
  const x = (v) => left + ((v - low) / (high - low)) * (width - left - right);
  const marks = ticks(low, high, Math.max(2, Math.floor((width - left - right) / 110)));
  const all = items.map((item, i) => {
    const y = top + row * i + row / 2;
    return svg("g", { class: "item" },
      text(left - 8, y + 4.5, names[i], { class: "label", "text-anchor": "end", full: item.label }),
      svg("rect", { class: "fill", x: x(Math.min(0, item.value)), y: y - 8, height: 16, width: Math.abs(x(item.value) - x(0)) }),
      item.bar === null ? text(x(item.value) + 5, y + 5, "?", { class: "unknown" }) : whisker(x(item.value - item.bar), y, x(item.value + item.bar), y),
      text(width - 2, y + 4.5, numbers[i], { class: "value", "text-anchor": "end" }));
  });
  return picture(width, height, label,
    marks.map((m) => [
      svg("line", { class: m === 0 ? "axis" : "grid", x1: x(m), x2: x(m), y1: top, y2: height - 22 }),
      text(x(m), height - 6, short(m), { class: "tick", "text-anchor": "middle" }),
    ]), all);
}

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "5 2", "1 5"];

function mark(i, x, y) {
  if (i % 3 === 1) return svg("rect", { class: `dot series-${i}`, x: x - 4, y: y - 4, width: 8, height: 8 });
  if (i % 3 === 2) return svg("path", { class: `dot series-${i}`, d: `M${x},${y - 5}L${x + 5},${y + 4}L${x - 5},${y + 4}Z` });
  return svg("circle", { class: `dot series-${i}`, cx: x, cy: y, r: 4 });
}

// Lines along ordered values: `at` are their labels, each series { label, items }. What has no order stands apart.
export function lines(at, series, width, label, { apart = false, logarithmic = false } = {}) {
  const many = at.length * series.length > 120;
  const names = series.map((s) => cut(s.label, 18));
  const left = 58, right = series.length > 1 ? 26 + 7.4 * Math.max(...names.map((n) => n.length)) : 24;
  const top = 14, height = 360, bottom = height - 46;
  const all = series.flatMap((s) => s.items);
  const known = all.map((i) => i.value).filter((v) => v > 0);
  const [low, high] = logarithmic
    ? [Math.floor(Math.log10(Math.min(...known))), Math.ceil(Math.log10(Math.max(...known)))]
    : reach(all);
  const y = (v) => bottom - (((logarithmic ? Math.log10(v) : v) - low) / (high - low || 1)) * (bottom - top);
  const marks = logarithmic
    ? powers(low, high, 2 * (bottom - top))
    : ticks(low, high, 5);
  const step = (width - left - right) / Math.max(1, at.length);
  const x = (i) => left + step * (i + 0.5);
  const every = Math.ceil((at.length * 64) / (width - left - right));
  const joined = apart ? at.length - 1 : at.length;
  const curves = series.map((s, k) => {
    // Series stand a little apart, so that their bars do not hide one another.
    const shift = series.length > 1 && !many ? (k - (series.length - 1) / 2) * Math.min(6, step / (series.length + 1)) : 0;
    const place = (i) => [x(i) + shift, y(s.items[i].value)];
    const path = s.items.slice(0, joined).map((_, i) => `${i ? "L" : "M"}${place(i).map((p) => p.toFixed(1)).join(",")}`).join("");
    const ends = s.items.filter((i) => i.bar !== null);
    const band = many && !logarithmic && ends.length === s.items.length && s.items.slice(0, joined);
    const edge = (sign) => band.map((item, i) => `${x(i)},${y(item.value + sign * item.bar).toFixed(1)}`);
    return svg("g", { class: "item" },
      band && svg("path", { class: `band series-${k}`, d: `M${edge(1).join("L")}L${edge(-1).reverse().join("L")}Z` }),
      svg("path", { class: `line series-${k}`, d: path, "stroke-dasharray": DASHES[k] || null }),
      many ? null : s.items.map((item, i) => svg("g", {},
        item.bar !== null && !logarithmic && whisker(place(i)[0], y(item.value - item.bar), place(i)[0], y(item.value + item.bar)),
        mark(k, ...place(i)), svg("title", {}, `${s.label} · ${at[i]}: ${withBar(item.value, item.bar)}`))));
  });
  return picture(width, height, label,
    marks.map((m) => [
      svg("line", { class: m === 0 ? "axis" : "grid", x1: left, x2: width - right, y1: y(m), y2: y(m) }),
      text(left - 8, y(m) + 4, short(m), { class: "tick", "text-anchor": "end" }),
    ]),
    at.map((name, i) => (i % every && i !== at.length - 1) || (i === at.length - 1 && (i % every) && every > 1) ? null
      : text(x(i), height - 24, cut(name, Math.max(6, Math.floor((step * every) / 7))), { class: "tick", "text-anchor": "middle", full: name })),
    curves, series.length > 1 && endLabels(series, names, width - right + 12, (s) => y(s.items[joined - 1].value), top, bottom));
}

// The name of each series at its end, moved apart where they would meet.
function endLabels(series, names, x, height, top, bottom) {
  const order = series.map((s, k) => ({ k, y: height(s) })).sort((a, b) => a.y - b.y);
  order.forEach((o, i) => { if (i) o.y = Math.max(o.y, order[i - 1].y + 17); });
  let last = bottom;
  for (const o of [...order].reverse()) { o.y = Math.min(o.y, last); last = o.y - 17; }
  return order.map(({ k, y }) => svg("g", {}, mark(k, x - 2, y), text(x + 8, y + 4.5, names[k], { class: "label", full: series[k].label })));
}

export const LEVELS = 6;

// A map of cells: `item(i, j)` is { value, bar }; darker is more, and the number is in the cell where it fits.
export function heat(rows, columns, item, width, label) {
  const [names, left] = namesLeft(rows, 26, width * 0.3);
  const each = (width - left - 4) / columns.length;
  // The widest number and the widest bar, at about 7 pixels a character.
  const widest = each < 32 ? Infinity : Math.max(...rows.flatMap((_, i) => columns.map((_, j) => Math.max(shown(item(i, j).value, item(i, j).bar).length, shown(item(i, j).bar).length + 1))));
  const tall = 7 * widest + 4 < each ? 44 : rows.length > 30 ? 16 : 30;
  const top = 26, height = top + tall * rows.length + 34;
  const size = each >= 92 ? TEXT : 11;
  const all = rows.flatMap((_, i) => columns.map((_, j) => item(i, j).value));
  const most = Math.max(...all, 0) || 1;
  const level = (v) => Math.min(LEVELS - 1, Math.floor(Math.sqrt(Math.max(0, v) / most) * LEVELS));
  const every = Math.ceil(34 / each);
  const cells = rows.map((r, i) => columns.map((c, j) => {
    const { value, bar } = item(i, j);
    const x = left + each * j, y = top + tall * i;
    const title = `${r} · ${c}: ${withBar(value, bar)}`;
    const fits = each > 14 && tall > 20 && shown(value, bar).length * 7 < each;
    return svg("g", { class: `cell level-${level(value)}` },
      svg("rect", { x: x + 1, y: y + 1, width: Math.max(0.5, each - 2), height: tall - 2 }),
      fits && text(x + each / 2, y + (tall > 40 ? 19 : tall / 2 + 4), shown(value, bar), { "text-anchor": "middle", "font-size": size }),
      fits && tall > 40 && text(x + each / 2, y + 34, `± ${shown(bar)}`, { class: "small", "text-anchor": "middle" }),
      svg("title", {}, title));
  }));
  const legend = Array.from({ length: LEVELS }, (_, k) => svg("g", { class: `cell level-${k}` },
    svg("rect", { x: left + 34 * k, y: height - 20, width: 32, height: 10 })));
  return picture(width, height, label,
    columns.map((c, j) => j % every ? null : text(left + each * (j + 0.5), 17, cut(c, Math.max(3, Math.floor((each * every) / 7.4))), { class: "tick", "text-anchor": "middle", full: c })),
    rows.map((r, i) => tall < 20 && i % 2 ? null : text(left - 8, top + tall * (i + 0.5) + 4.5, names[i], { class: "label", "text-anchor": "end", full: r })),
    cells, legend,
    text(left + 34 * LEVELS + 6, height - 11, `0 to ${short(most)}`, { class: "tick" }));
}

// Shares of a whole, side by side. A name that is too long for its share stands further down, at the end of a line.
export function shares(items, width, label) {
  const whole = items.reduce((sum, i) => sum + i.value, 0) || 1;
  let x = 0;
  const parts = items.map((item, k) => {
    const from = x, name = cut(`${item.label} ${percent(item.value / whole)}`, Math.floor(width / 8));
    x += (item.value / whole) * width;
    return { k, from, to: x, name, long: 7.2 * name.length };
  });
  const placed = [];
  const put = (part, row) => {
    const right = row && part.from > width / 2;
    const at = right ? part.to - 2 : part.from + 2;
    const [from, to] = right ? [at - part.long, at] : [at, at + part.long];
    const free = placed.every((p) => (p.row === row ? p.to + 8 < from || to + 8 < p.from : p.row > row ? p.at < from - 3 || p.at > to + 3 : at < p.from - 3 || at > p.to + 3));
    if (free) placed.push({ row, at, from, to, name: part.name, right });
    return free;
  };
  const fits = (p) => p.long <= p.to - p.from - 4;
  const outer = parts.filter((p) => !fits(p));
  for (const p of parts) if (fits(p)) put(p, 0);
  for (const p of [...outer.filter((o) => o.from <= width / 2).reverse(), ...outer.filter((o) => o.from > width / 2)]) {
    for (let row = 1; row < 9 && !put(p, row); row++);
  }
  const bottom = 53 + 18 * Math.max(0, ...placed.map((p) => p.row));
  return picture(width, bottom + 6, label,
    parts.map(({ k, from, to, name }) => svg("rect", { class: `share share-${Math.min(k, 5)}`, x: from + 1, y: 4, width: Math.max(0.5, to - from - 2), height: 30 },
      svg("title", {}, name))),
    placed.map(({ row, at, name, right }) => [
      row > 0 && svg("line", { class: "axis", x1: at, x2: at, y1: 34, y2: 41 + 18 * row }),
      text(right ? at - 5 : row ? at + 5 : at, 51 + 18 * row, name, { class: "label", "text-anchor": right ? "end" : "start" }),
    ]));
}

// A picture by itself, with its colours inside, for a file.
export function standalone(chart) {
  const copy = chart.cloneNode(true);
  const ours = chart.querySelectorAll("*"), theirs = copy.querySelectorAll("*");
  const kept = ["fill", "fill-opacity", "stroke", "stroke-width", "font-size", "font-weight"];
  ours.forEach((node, i) => {
    if (["title", "g"].includes(node.tagName)) return;
    const style = getComputedStyle(node);
    for (const name of kept) theirs[i].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("font-family", "system-ui, sans-serif");
  const ground = svg("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor });
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy);
}
