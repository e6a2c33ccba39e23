// Numbers for people, in the reader's own format, and to the digits that noise leaves: as release.ask shows them.

const LOCALE = (() => {
  try {
    return Intl.NumberFormat.supportedLocalesOf(navigator.languages || [])[0] || "en";
  } catch {
    return "en";
  }
})();
const formats = new Map();

function format(options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(LOCALE, { roundingMode: "halfEven", ...options }));
  return formats.get(key);
}

function fixed(value, digits) {
  return format({ minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
}

function significant(value, digits) {
  if (value !== 0 && Math.abs(value) < 1e-4) {
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    return `${format({ maximumFractionDigits: digits }).format(Number(mantissa))}e${power}`;
  }
  return format({ maximumSignificantDigits: digits, useGrouping: Math.abs(value) >= 1000 }).format(value);
}

// A number with the digits that its bar leaves; the same rule as dpjoin.released.shown.number.
export function shown(value, bar = null) {
  if (value === null || !Number.isFinite(value)) return "?";
  if (bar !== null && bar > 0 && bar < 1) return fixed(value, Math.min(1 - Math.floor(Math.log10(bar)), 6));
  if (Math.abs(value) >= 10 || Number.isInteger(value)) return fixed(value, 0);
  return significant(value, 2);
}

export function withBar(value, bar) {
  return `${shown(value, bar)} ± ${shown(bar)}`;
}

export function short(value) {
  if (value === null || !Number.isFinite(value)) return "?";
  return Math.abs(value) >= 10000
    ? format({ notation: "compact", maximumSignificantDigits: 3 }).format(value)
    : significant(value, 3);
}

export function percent(share) {
  return format({ style: "percent", maximumSignificantDigits: share < 0.1 ? 1 : 2 }).format(share);
}

export function count(value) {
  return fixed(value, 0);
}

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

// A public number: 0.0279709, 10⁻⁶, 4.72 × 10⁻⁷.
export function exactly(value) {
  if (value === 0 || Math.abs(value) >= 1e-4) return significant(value, 6);
  const [mantissa, power] = value.toExponential(3).split("e");
  const ten = `10${[...String(Number(power))].map((c) => RAISED[c]).join("")}`;
  return Number(mantissa) === 1 ? ten : `${format({ maximumSignificantDigits: 4 }).format(Number(mantissa))} × ${ten}`;
}

// 1, 2 or 5 times a power of ten: about as many steps as wanted, from low to high.
export function ticks(low, high, wanted = 5) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  const found = [];
  // Zero has no sign.
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-9); i++) found.push(i * step + 0);
  return found;
}

// What a packed array of the page holds: eight bytes a number, or fewer for codes.
const ARRAYS = { 8: Float64Array, 1: Uint8Array, 2: Uint16Array, 4: Uint32Array };

export function unpacked(text, kind = "8") {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new ARRAYS[kind](bytes.buffer);
}
