// What the page knows: counts of some attributes, under filters, from a marginal that it holds or from its rows.

import { unpacked } from "./numbers.js";

// The labels of an attribute; those of a range are not written down.
export function labelOf(attribute, code) {
  if (attribute.labels) return attribute.labels[code];
  return code > attribute.range[1] - attribute.range[0] ? "other" : String(attribute.range[0] + code);
}

// The same for charts and choices, where an empty one could not be seen.
export function readable(attribute, code) {
  return labelOf(attribute, code).trim() || "(blank)";
}

export function opened(data) {
  const attributes = data.attributes;
  const marginals = new Map();
  for (const m of data.explorer.marginals) marginals.set([...m.scope].sort((a, b) => a - b).join(" "), m);
  const arrays = (m) => {
    m.read ||= { counts: unpacked(m.counts), bars: unpacked(m.bars) };
    return m.read;
  };
  const sample = data.explorer.sample;
  const column = (a) => (sample.columns[a].read ||= unpacked(sample.columns[a].codes, sample.columns[a].kind));
  const each = data.about.size[0] / Math.max(1, sample.rows);

  // Counts of each value (or pair of values) of `chosen`, where each filter's attribute has its value.
  function ask(chosen, filters) {
    const scope = [...chosen, ...filters.map((f) => f.attribute)];
    const held = marginals.get([...scope].sort((a, b) => a - b).join(" "));
    return held ? fromModel(held, chosen, filters) : fromRows(chosen, filters);
  }

  function fromModel(held, chosen, filters) {
    const { counts, bars } = arrays(held);
    const strides = new Map();
    let stride = 1;
    for (const a of [...held.scope].reverse()) {
      strides.set(a, stride);
      stride *= attributes[a].size;
    }
    const start = filters.reduce((sum, f) => sum + strides.get(f.attribute) * f.code, 0);
    const cells = everyCell(chosen, (codes) => {
      const at = codes.reduce((sum, c, i) => sum + strides.get(chosen[i]) * c, start);
      return { codes, value: counts[at], bar: Number.isNaN(bars[at]) ? null : bars[at] };
    });
    return { source: "model", known: cells.some((c) => c.bar !== null), cells };
  }

  function fromRows(chosen, filters) {
    const seen = new Map();
    const columns = chosen.map(column);
    const kept = filters.map((f) => [column(f.attribute), f.code]);
    for (let row = 0; row < sample.rows; row++) {
      if (kept.some(([codes, wanted]) => codes[row] !== wanted)) continue;
      const at = columns.reduce((sum, codes, i) => sum * attributes[chosen[i]].size + codes[row], 0);
      seen.set(at, (seen.get(at) || 0) + 1);
    }
    const large = chosen.reduce((n, a) => n * attributes[a].size, 1) > 20000;
    const cells = large
      ? [...seen.keys()].sort((a, b) => a - b).map((at) => ({ codes: codesOf(at, chosen), value: seen.get(at) * each, bar: null }))
      : everyCell(chosen, (codes) => ({ codes, value: (seen.get(codes.reduce((s, c, i) => s * attributes[chosen[i]].size + c, 0)) || 0) * each, bar: null }));
    return { source: "rows", known: false, cells, rows: [...seen.values()].reduce((a, b) => a + b, 0) };
  }

  function codesOf(at, chosen) {
    const codes = [];
    for (const a of [...chosen].reverse()) {
      codes.unshift(at % attributes[a].size);
      at = Math.floor(at / attributes[a].size);
    }
    return codes;
  }

  function everyCell(chosen, make) {
    const total = chosen.reduce((n, a) => n * attributes[a].size, 1);
    return Array.from({ length: total }, (_, at) => make(codesOf(at, chosen)));
  }

  return { attributes, marginals, arrays, ask, each, sampled: sample.rows };
}

// What DuckDB reads as something else than a column's name.
const RESERVED = new Set((
  "all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check collate collation " +
  "column columns concurrently constraint create cross default deferrable desc describe distinct do else end except false fetch for " +
  "foreign freeze from full generated glob group having ilike in initially inner intersect into is isnull join lambda lateral leading " +
  "left like limit map natural not notnull null offset on only or order outer overlaps pivot pivot_longer pivot_wider placing " +
  "positional primary qualify references returning right select semi show similar some struct summarize symmetric table tablesample " +
  "then to trailing true try_cast tuple union unique unpack unpivot using variadic verbose when where window with"
).split(" "));

function named(name) {
  const plain = /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !RESERVED.has(name.toLowerCase());
  return plain ? name : `"${name.replaceAll('"', '""')}"`;
}

function literal(attribute, code) {
  const label = labelOf(attribute, code);
  const other = attribute.other && code === attribute.size - 1;
  const plain = (attribute.plain || attribute.range) && !other;
  return plain ? label : `'${label.replaceAll("'", "''")}'`;
}

// The statement for `dpjoin answer` and `release.ask`. Values that filter are grouped too where the model has their counts.
export function statement(known, chosen, filters, source, byCount) {
  const name = (a) => named(known.attributes[a].name);
  const grouped = source === "model" ? [...chosen, ...filters.map((f) => f.attribute)] : chosen;
  const columns = grouped.map(name);
  const where = filters.map((f) => `${name(f.attribute)} = ${literal(known.attributes[f.attribute], f.code)}`);
  return [
    `SELECT ${[...columns, "COUNT(*)"].join(", ")}`,
    "FROM joined",
    where.length ? `WHERE ${where.join("\n  AND ")}` : null,
    columns.length ? `GROUP BY ${columns.join(", ")}` : null,
    byCount && columns.length ? "ORDER BY COUNT(*) DESC" : null,
  ].filter(Boolean).join("\n");
}

export function csvOf(heads, rows) {
  const cell = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [heads, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
