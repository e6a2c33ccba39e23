// Choose one or two attributes, filter by others, and see counts with their bars.

import { bdi, copyable, cut, el, saved, section, table } from "./dom.js";
import { bars, heat, lines, standalone } from "./charts.js";
import { count, shown } from "./numbers.js";
import { csvOf, labelOf, readable, statement } from "./select.js";

const MOST_BARS = 40, MOST_SERIES = 6, MOST_SIDE = 40, MOST_ALONG = 1000;
const KINDS = { bars: "Bars", lines: "Lines", heat: "Heat map" };

function choice(label, id, options, value, onchange) {
  const select = el("select", { id, onchange: (e) => onchange(e.target.value) },
    options.map(([key, told]) => el("option", { value: key, selected: String(key) === String(value) }, cut(told, 60))));
  return el("div", { class: "control" }, el("label", { for: id }, label), select);
}

export function explorer(known) {
  const { attributes } = known;
  const order = attributes.map((_, i) => i);
  // Begin with what has most to show at a glance.
  const telling = [...order].sort((i, j) => attributes[j].size - attributes[i].size).find((i) => attributes[i].size <= 16);
  const state = { first: telling ?? 0, second: -1, filters: [], kind: "", sort: "" };
  const controls = el("div", { class: "controls" });
  const filters = el("div", { class: "controls filters" });
  const figure = el("figure", { class: "explored" });
  const source = el("p", { class: "source", role: "status" });
  const below = el("div");
  const sql = copyable("", "SQL for what is shown");

  const options = (taken) => order.filter((i) => !taken.includes(i)).map((i) => [i, attributes[i].name]);
  const chosen = () => (state.second < 0 ? [state.first] : [state.first, state.second]);

  // What a line can be drawn along.
  const alongside = (a) => attributes[a].ordered && attributes[a].size <= MOST_ALONG;

  // The values of an attribute, or those with the largest sums, in their order.
  function most(own, place, cells, limit) {
    if (attributes[own].size <= limit) return Array.from({ length: attributes[own].size }, (_, i) => i);
    const sums = new Map();
    for (const { codes, value } of cells) sums.set(codes[place], (sums.get(codes[place]) || 0) + value);
    return [...sums].sort((p, q) => q[1] - p[1]).slice(0, limit).map(([code]) => code).sort((i, j) => i - j);
  }

  function kinds() {
    const line = chosen().some(alongside) ? ["lines"] : [];
    return state.second < 0 ? ["bars", ...line] : ["heat", ...line, "bars"];
  }

  function sorts() {
    return state.second < 0 || kind() === "bars" ? [["value", "by value"], ["count", "by count"]] : [["value", "by value"]];
  }

  function kind() {
    if (kinds().includes(state.kind)) return state.kind;
    const long = ([one, other]) => alongside(one) && attributes[one].size > (other === undefined ? 16 : MOST_SIDE) &&
      (other === undefined || attributes[other].size <= MOST_SERIES);
    return [chosen(), chosen().reverse()].some(long) ? "lines" : kinds()[0];
  }

  function sorted() {
    if (sorts().some(([key]) => key === state.sort)) return state.sort;
    return sorts().length > 1 && state.second < 0 && !attributes[state.first].ordered ? "count" : "value";
  }

  function set(changes) {
    const at = document.activeElement?.id;
    Object.assign(state, changes);
    if (state.first === state.second) state.second = -1;
    state.filters = state.filters.filter((f) => !chosen().includes(f.attribute));
    draw();
    // The element that had the focus was made anew.
    if (at) document.getElementById(at)?.focus();
  }

  function drawControls() {
    const free = options([...chosen(), ...state.filters.map((f) => f.attribute)]);
    controls.replaceChildren(
      choice("Show", "show", options([]), state.first, (v) => set({ first: Number(v), kind: "", sort: "" })),
      choice("by", "by", [[-1, "nothing else"], ...options([state.first])], state.second, (v) => set({ second: Number(v), kind: "" })),
      choice("as", "kind", kinds().map((k) => [k, KINDS[k]]), kind(), (v) => set({ kind: v })),
      choice("sorted", "sort", sorts(), sorted(), (v) => set({ sort: v })),
      free.length ? choice("where", "filter", [[-1, "add a filter…"], ...free], -1,
        (v) => Number(v) >= 0 && set({ filters: [...state.filters, { attribute: Number(v), code: 0 }] })) : "");
    filters.replaceChildren(...state.filters.map((f, i) => {
      const attribute = attributes[f.attribute];
      const most = Math.min(attribute.size, 5000);
      const values = Array.from({ length: most }, (_, code) => [code, readable(attribute, code)]);
      const change = (code) => set({ filters: state.filters.map((g, k) => (k === i ? { ...f, code: Number(code) } : g)) });
      return el("div", { class: "filter" },
        choice(`${cut(attribute.name, 40)} is`, `filter-${i}`, values, f.code, change),
        el("button", { type: "button", class: "remove", "aria-label": `Remove the filter on ${cut(attribute.name, 40)}`,
          onclick: () => set({ filters: state.filters.filter((g) => g !== f) }) }, "×"));
    }));
  }

  function told(found) {
    if (found.source === "rows") {
      return ["From ", count(found.rows), " of the ", count(known.sampled), " synthetic rows that this page holds: " +
        "a rough count, without an error bar (?). Ask the statement below for the model's own answer."];
    }
    return found.known
      ? ["From the model. The bars hold the exact count about nine times in ten."]
      : ["From the model, which never measured these together: how far off it is, is not known (?)."];
  }

  function words() {
    const by = chosen().map((a) => attributes[a].name).join(" and ");
    const where = state.filters.map((f) => `${attributes[f.attribute].name} is ${readable(attributes[f.attribute], f.code)}`);
    return `Join results by ${by}${where.length ? `, where ${where.join(" and ")}` : ""}`;
  }

  function ordered(cells) {
    return sorted() === "count" ? [...cells].sort((a, b) => b.value - a.value) : cells;
  }

  function pictured(cells, width, title) {
    const [a, b] = chosen();
    const label = (cell) => cell.codes.map((c, i) => readable(attributes[chosen()[i]], c)).join(" · ");
    const item = (cell) => ({ label: label(cell), value: cell.value, bar: cell.bar });
    if (kind() === "bars") {
      const some = state.second < 0 ? cells : [...cells].sort((x, y) => y.value - x.value);
      const few = some.length > MOST_BARS ? [...some].sort((x, y) => y.value - x.value).slice(0, MOST_BARS) : cells;
      return [bars(few.map(item), width, title), cells.length > few.length && `The ${few.length} largest of ${cells.length}; the table has all.`];
    }
    if (state.second < 0) {
      const at = cells.map(label);
      return [lines(at, [{ label: attributes[a].name, items: cells.map(item) }], width, title, { apart: attributes[a].other && sorted() === "value" })];
    }
    const grid = new Map(cells.map((c) => [c.codes.join(" "), c]));
    const get = (i, j) => grid.get(`${i} ${j}`) || { codes: [i, j], value: 0, bar: null };
    if (kind() === "lines") {
      // Along what is ordered; the other one makes the lines.
      const along = alongside(a) && (!alongside(b) || attributes[a].size >= attributes[b].size) ? 0 : 1;
      const [x, s] = along === 0 ? [a, b] : [b, a];
      const cell = (i, k) => (along === 0 ? get(i, k) : get(k, i));
      const places = Array.from({ length: attributes[x].size }, (_, i) => i);
      const few = most(s, 1 - along, cells, MOST_SERIES).map((k) => ({ label: readable(attributes[s], k), items: places.map((i) => item(cell(i, k))) }));
      return [lines(places.map((i) => readable(attributes[x], i)), few, width, title, { apart: attributes[x].other }),
        few.length < attributes[s].size && `The ${few.length} most frequent of ${count(attributes[s].size)} values of ${attributes[s].name}; the table has all.`];
    }
    const [rows, columns] = [most(a, 0, cells, MOST_SIDE), most(b, 1, cells, MOST_SIDE)];
    const less = rows.length < attributes[a].size || columns.length < attributes[b].size;
    return [heat(rows.map((i) => readable(attributes[a], i)), columns.map((j) => readable(attributes[b], j)), (i, j) => get(rows[i], columns[j]), width, title),
      less && `The ${MOST_SIDE} most frequent values of each; the table has all.`];
  }

  function draw() {
    drawControls();
    const found = known.ask(chosen(), state.filters);
    const cells = ordered(found.cells);
    const title = words();
    const [chart, note] = pictured(cells, Math.max(320, figure.clientWidth || 960), cut(title, 300));
    figure.replaceChildren(el("figcaption", {}, bdi(cut(title, 300))), chart, note ? el("p", { class: "note" }, cut(note, 300)) : "");
    source.replaceChildren(...told(found));
    const columns = [...chosen().map((a) => ({ title: bdi(attributes[a].name) })), { title: "count", number: true }, { title: "±\u00a090\u00a0%", number: true }];
    const labels = (cell) => cell.codes.map((c, i) => labelOf(attributes[chosen()[i]], c));
    const lines = cells.map((c) => [...labels(c).map(bdi), shown(c.value, c.bar), shown(c.bar)]);
    const open = below.querySelector("details")?.open ?? true;
    const file = (ending) => `${chosen().map((a) => attributes[a].name.replace(/[^\p{L}\p{N}_-]+/gu, "-").slice(0, 40)).join("-by-")}.${ending}`;
    const exported = () => csvOf([...chosen().map((a) => attributes[a].name), "count", "count ±"], cells.map((c) => [...labels(c), c.value, c.bar]));
    below.replaceChildren(
      table(cut(title, 300), columns, lines, { open, id: "explored-table" }),
      el("p", { class: "actions" },
        el("button", { type: "button", id: "csv", onclick: () => saved(file("csv"), "text/csv", exported()) }, "Download CSV"),
        el("button", { type: "button", id: "svg", onclick: () => saved(file("svg"), "image/svg+xml", standalone(chart)) }, "Download SVG")));
    sql.set(statement(known, chosen(), state.filters, found.source, sorted() === "count"));
  }

  const made = section("explore", "Explore",
    "Choose one or two attributes, and filter by others. Every number has its error bar; a question mark stands where none is known.",
    controls, filters, figure, source, el("div", { class: "asked" }, el("h3", {}, "The same in SQL"), sql.box), below);
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(figure.clientWidth - width) > 4) {
      width = figure.clientWidth;
      draw();
    }
  }).observe(figure);
  draw();
  return { made, choose: (first, second) => set({ first, second, filters: [], kind: "", sort: "" }) };
}
