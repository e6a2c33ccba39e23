// Elements by code: text is always text, never markup.

const SVG = "http://www.w3.org/2000/svg";

// Signs that turn the direction of all that follows. A label keeps them where it stands alone.
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g;

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    const text = () => (["bdi", "code"].includes(node.localName) ? String(child) : String(child).replace(TURNING, ""));
    node.append(child instanceof Node ? child : document.createTextNode(text()));
  }
  return node;
}

// el("p", { class: "note" }, "text", anotherElement)
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// A label that comes from a spec: its writing direction stays its own.
export function bdi(text) {
  return el("bdi", {}, text);
}

// The beginning of a long label; what is cut is in the title of its element and in the table.
export function cut(text, most) {
  const line = String(text).replace(TURNING, "").replace(/\s+/g, " ");
  if (line.length <= most) return line;
  return Array.from(line.slice(0, 4 * most)).slice(0, Math.max(1, most - 1)).join("") + "…";
}

export function section(id, title, lead, ...children) {
  const head = el("h2", { id: `${id}-title` }, title);
  return el("section", { id, "aria-labelledby": `${id}-title` }, head, lead && el("p", { class: "lead" }, lead), children);
}

// A table with headings; columns are { title, number } and cells are texts or nodes.
const FIRST = 100;

export function table(caption, columns, rows, { open = false, id = null } = {}) {
  const line = (cells) =>
    el("tr", {}, cells.map((cell, i) => {
      // A long text may break anywhere; short ones keep their words.
      const long = String(cell?.textContent ?? cell).length > 60;
      const kind = { class: columns[i].number ? "number" : long ? "long" : null };
      return i === 0 ? el("th", { scope: "row", ...kind }, cell) : el("td", kind, cell);
    }));
  const heads = columns.map((c) => el("th", { scope: "col", class: c.number ? "number" : null }, c.title));
  const body = el("tbody", {}, rows.slice(0, FIRST).map(line));
  const held = el("div", { class: "table", tabindex: 0, role: "region", "aria-label": `Table: ${caption}` },
    el("table", {}, el("caption", { class: "unseen" }, caption), el("thead", {}, el("tr", {}, heads)), body));
  const more = rows.length > FIRST && el("button", { type: "button", class: "more", onclick: () => {
    body.append(...rows.slice(FIRST).map(line));
    more.remove();
  } }, `Show all ${rows.length} rows`);
  return el("details", { open, id }, el("summary", {}, `Table: ${caption}`), held, more);
}

export function saved(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Text to copy, with a button; where a page may not use the clipboard, the text is selected.
export function copyable(text, label) {
  const held = el("pre", { tabindex: 0, role: "region", "aria-label": label }, el("code", {}, text));
  const said = el("span", { class: "said", role: "status" });
  const copy = async () => {
    const range = document.createRange();
    range.selectNodeContents(held);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    try {
      await navigator.clipboard.writeText(held.textContent);
      said.textContent = "copied";
    } catch {
      said.textContent = document.execCommand("copy") ? "copied" : "selected";
    }
    setTimeout(() => { said.textContent = ""; }, 2000);
  };
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy: ${label}`, onclick: copy }, "Copy");
  const box = el("div", { class: "code" }, held, button, said);
  return { box, set: (now) => { held.firstChild.textContent = now; } };
}
