// Tables as boxes, joined by lines that name what they share.

import { cut, svg } from "./dom.js";
import { picture, text } from "./charts.js";

const WIDE = 200, ROW = 20, MOST = 9, GAP = 150;

export function diagram(tables, edges) {
  const tall = (t) => 40 + ROW * Math.min(t.attributes.length, MOST + 1);
  const columns = new Map();
  const side = Math.ceil(Math.sqrt(tables.length));
  tables.forEach((t, i) => {
    const at = t.depth ?? i % side;
    if (!columns.has(at)) columns.set(at, []);
    columns.get(at).push(t);
  });
  const heights = [...columns.values()].map((some) => some.reduce((sum, t) => sum + tall(t) + 40, -40));
  const height = Math.max(...heights) + 20, width = columns.size * (WIDE + GAP) - GAP + 20;
  const places = new Map();
  for (const [at, some] of columns) {
    let y = 10 + (height - 20 - some.reduce((sum, t) => sum + tall(t) + 40, -40)) / 2;
    for (const t of some) {
      places.set(t.name, { x: 10 + at * (WIDE + GAP), y, tall: tall(t) });
      y += tall(t) + 40;
    }
  }
  const links = edges.map((e) => {
    const a = places.get(e.from), b = places.get(e.to);
    const [x1, x2] = a.x < b.x ? [a.x + WIDE, b.x] : a.x > b.x ? [a.x, b.x + WIDE] : [a.x + WIDE / 2, b.x + WIDE / 2];
    const [y1, y2] = a.x === b.x ? (a.y < b.y ? [a.y + a.tall, b.y] : [a.y, b.y + b.tall]) : [a.y + a.tall / 2, b.y + b.tall / 2];
    const label = e.on.join(", ");
    return svg("g", { class: "item" },
      svg("path", { class: "link", d: `M${x1},${y1}C${(x1 + x2) / 2},${y1} ${(x1 + x2) / 2},${y2} ${x2},${y2}` }),
      text((x1 + x2) / 2, (y1 + y2) / 2 - 6, cut(label, 20), { class: "tick on-link", "text-anchor": "middle", full: label }));
  });
  const boxes = tables.map((t) => {
    const { x, y, tall: h } = places.get(t.name);
    const few = t.attributes.slice(0, MOST);
    const more = t.attributes.length - few.length;
    return svg("g", { class: t.private ? "box private" : "box" },
      svg("rect", { x, y, width: WIDE, height: h, rx: 8 }),
      text(x + 12, y + 22, cut(t.name, 15), { class: "name", full: t.name }),
      text(x + WIDE - 12, y + 22, t.private ? "private" : "public", { class: "tick", "text-anchor": "end" }),
      few.map((a, i) => text(x + 12, y + 44 + ROW * i, cut(a.name, 16), { class: a.joins ? "label joins" : "label", full: a.name })),
      few.map((a, i) => (a.joins || a.key) && text(x + WIDE - 12, y + 44 + ROW * i, a.joins ? "joins" : "key", { class: "tick", "text-anchor": "end" })),
      more > 0 && text(x + 12, y + 44 + ROW * few.length, `and ${more} more`, { class: "tick" }));
  });
  return picture(width, height, `Tables and what joins them: ${tables.map((t) => t.name).join(", ").slice(0, 300)}`, links, boxes);
}
