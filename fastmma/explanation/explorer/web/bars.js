// A step of a sum as bars of bits: terms over the window of their alignment, what is dropped dimmed.

const BAR = { left: 210, line: 19, bit: 9, height: 13, most: 150 };

// a number of JSON that may be too long for a double
const big = (value) => BigInt(value);
const top2 = ([significand, last]) => (significand < 0n ? -significand : significand).toString(2).length - 1 + last;
const dyadic = (pair) => [big(pair[0]), Number(pair[1])];

function decimal([significand, last]) {
  const value = Number(significand) * 2 ** last;
  return Number.isFinite(value) && (value || !significand) ? `${Number(value.toPrecision(9))}` : `${significand} · 2^${last}`;
}

class Bars {
  constructor(step, number, parted) {
    Object.assign(this, { step, number, parted: new Set(parted) });
    this.bars = step.terms.filter((term) => big(term.significand) || term.special).map((term) => this.term(term));
    this.zeros = step.terms.filter((term) => (term.k || []).length && !big(term.significand) && !term.special).length;
    if (step.total) this.bars.push(this.sum(dyadic(step.total)));
    const tops = this.bars.filter((bar) => bar.value[0]).map((bar) => top2(bar.value));
    this.top = Math.max(...tops, 0 === tops.length ? 0 : -Infinity);
    const lasts = this.bars.filter((bar) => bar.value[0]).map((bar) => bar.value[1]);
    this.bottom = Math.min(...lasts, step.unit ?? Infinity, this.top);
    this.bottom = Math.max(this.bottom, this.top - BAR.most + 1);
  }

  static lowest([significand, last]) {
    while (significand && !(significand & 1n)) [significand, last] = [significand >> 1n, last + 1];
    return [significand, last];
  }

  term(term) {
    const { step } = this, product = (term.k || []).length > 0 || term.name.includes(" * ");
    let name = term.name;
    if ((term.k || []).length > 1) name = `k ${term.k[0]}..${term.k.at(-1)}`;
    else if ((term.k || []).length === 1) {
      const hex = (code) => `0x${code.toString(16)}`;
      name = step.operation === "sum" ? `k ${term.k[0]}` : `k ${term.k[0]}  ${hex(term.a[0])} * ${hex(term.b[0])}`;
    }
    const value = [big(term.significand), term.last];
    const marked = (term.k || []).some((k) => this.parted.has(k));
    return { name, value, special: term.special, floor: step.unit, kind: product ? "term" : "accumulator", note: decimal(value), marked };
  }

  // the sum, of which the rounding drops the bits below the last that the result has
  sum(value) {
    const { step } = this, dropped = dyadic(step.dropped);
    let [significand, last] = value;
    if (step.unit !== null && last > step.unit) [significand, last] = [significand << BigInt(last - step.unit), step.unit];
    const floor = dropped[0] ? top2(dropped) + 1 : null;
    const code = `0x${step.code.toString(16).padStart(2, "0")} (${step.format})`;
    return { name: "sum", value: [significand, last], special: "", floor, kind: "sum", note: `${decimal(value)}  ${code}` };
  }

  heading() {
    const { stage, k, emax, unit } = this.step;
    const last = k[1] - 1 > k[0] ? `..${k[1] - 1}` : "";
    const where = k[1] > k[0] ? `k ${k[0]}${last}: ` : "", when = stage === "instruction" ? "" : `${stage}: `;
    return `step ${this.number}, ${where}${when}${this.formula()}${unit === null ? "" : `, emax ${emax}, unit 2^${unit}`}`;
  }

  // what is computed, of the terms by their names
  formula() {
    const { stage, operation, terms, format } = this.step, names = terms.map((term) => term.name);
    if (operation === "fused") return "fused sum";
    if (operation === "sum" && stage !== "split-k") return "exact sum of integers";
    if (operation === "fma") return `fma, ${names[0]} + ${names[1]}`;
    if (operation === "relu") return `max(${names[0]}, 0)`;
    if (operation === "convert") return `${names[0]} to ${format}`;
    return ["add", "sum"].includes(operation) ? names.join(" + ") : names[0];
  }

  svg() {
    const height = (this.bars.length + 2.4) * BAR.line, right = BAR.left + (this.top - this.bottom + 1) * BAR.bit;
    const width = right + 12 + Math.max(...this.bars.map((bar) => bar.note.length), 10) * 7.4;
    const drawing = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.heading() });
    drawing.append(text(0, 12, this.heading(), { "font-weight": "bold" }));
    this.bars.forEach((bar, index) => this.bar(drawing, bar, (index + 1.6) * BAR.line, right));
    const foot = (this.bars.length + 1.5) * BAR.line;
    const { unit } = this.step;
    if (unit !== null && unit >= this.bottom && unit <= this.top + 1) {
      const x = BAR.left + (this.top - unit + 1) * BAR.bit - 1;
      drawing.append(draw("rect", { x, y: BAR.line * 1.1, width: 2, height: this.bars.length * BAR.line, fill: "var(--unit)" }, `unit 2^${unit}`));
    }
    if (this.top - this.bottom >= 12) drawing.append(text(BAR.left, foot, `2^${this.top}`, { class: "faint" }));
    if (this.top > this.bottom) drawing.append(text(right, foot, `2^${this.bottom}`, { class: "faint", "text-anchor": "end" }));
    if (this.zeros) drawing.append(text(BAR.left - 12, foot, `${this.zeros} product${this.zeros > 1 ? "s" : ""} of zero`, { class: "faint", "text-anchor": "end" }));
    return drawing;
  }

  bar(drawing, bar, y, right) {
    drawing.append(text(BAR.left - 14, y, bar.name, { "text-anchor": "end", "font-weight": bar.kind === "sum" ? "bold" : "normal" }));
    drawing.append(text(right + 8, y, bar.note, { class: "faint" }));
    if (bar.special || !bar.value[0]) {
      drawing.append(text(BAR.left, y, bar.special || "0"));
      return;
    }
    const [significand, last] = bar.value, magnitude = significand < 0n ? -significand : significand;
    const sign = significand < 0n ? "-" : "+";
    for (let position = top2(bar.value); position >= Math.max(last, this.bottom); position -= 1) {
      const one = (magnitude >> BigInt(position - last)) & 1n, lost = bar.floor !== null && bar.floor !== undefined && position < bar.floor;
      const fill = `var(--${lost ? "lost" : bar.kind}${one ? "" : "-zero"})`;
      const note = `${sign}${one} · 2^${position}${lost ? ", dropped" : ""}`;
      const box = { x: BAR.left + (this.top - position) * BAR.bit, y: y - 10, width: BAR.bit - 1, height: BAR.height, fill };
      if (bar.marked && lost && one) Object.assign(box, { stroke: "var(--unit)", "stroke-width": 1.5 });
      drawing.append(draw("rect", box, note));
    }
    drawing.append(text(BAR.left + (this.top - top2(bar.value)) * BAR.bit - 2, y, sign, { "text-anchor": "end" }));
  }
}

function draw(name, attributes, note) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (note) element.append(Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "title"), { textContent: note }));
  return element;
}

function text(x, y, content, attributes = {}) {
  const element = draw("text", { x, y, "xml:space": "preserve", ...attributes });
  element.textContent = content;
  return element;
}
