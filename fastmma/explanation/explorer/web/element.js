// One element of a product on a GPU: numbers as codes of a format, sums by the adder, and its steps as bars take them.

const lowest = (significand, last) => Bars.lowest([significand, last]);

// a double as an exact number
function exact(value) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const found = number(view.getBigUint64(0), { bits: 64, padding: 0, exponent_bits: 11, mantissa_bits: 52, bias: 1023, signed: true, first_special: 0x7ff0000000000000n, infinite: true, has_zero: true });
  return [found.significand, found.last];
}

// the code of the nearest number of a format, the largest in place of larger ones
function encode([significand, last], fmt) {
  if (fmt.kind !== "float") {
    const value = signedRounded(significand, -last, "rn"), most = (1n << BigInt(fmt.bits - (fmt.kind === "signed" ? 1 : 0))) - 1n;
    const least = fmt.kind === "signed" ? -most - 1n : 0n;
    return BigInt.asUintN(fmt.bits, value > most ? most : value < least ? least : value);
  }
  const sign = significand < 0n ? 1n << BigInt(fmt.exponent_bits + fmt.mantissa_bits) : 0n, wide = { ...fmt, bits: fmt.bits - fmt.padding };
  const code = roundTo(magnitude(significand), last, wide, "rn"), most = BigInt(fmt.first_special) - 1n;
  return (sign | (code > most ? most : code)) << BigInt(fmt.padding);
}

function valueOf(code, fmt) {
  if (fmt.kind !== "float") return { value: [integer(code, fmt), 0], special: "" };
  const found = number(code, fmt);
  return { value: lowest(found.significand, found.last), special: found.special && (found.negative && found.special === "inf" ? "-inf" : found.special) };
}

const hexOf = (code, fmt) => code.toString(16).padStart(fmt.bits / 4, "0");

class Element {
  // the codes of a row of A and a column of B, which zeros fill to whole instructions
  constructor(rule, formats, a, b) {
    Object.assign(this, { rule, formats, adder: new Adder(rule, formats), a, b, fmt: formats[rule.d] });
    const zero = Array(-a.length & (rule.k - 1)).fill(0n);
    [this.row, this.column] = [[...a, ...zero], [...b, ...zero]];
  }

  code() {
    let total = 0n;
    for (let first = 0; first < this.row.length; first += this.rule.k) {
      const [a, b] = [this.row, this.column].map((each) => each.slice(first, first + this.rule.k));
      total = this.adder.element(a, b, total, a.map((_, at) => first + at));
    }
    return total;
  }

  // all steps, without those whose terms are the zeros at the end
  explained() {
    const steps = [];
    this.adder.seen = (step) => steps.push(this.described(step));
    const code = this.code();
    this.adder.seen = null;
    return { code, steps: steps.filter((step) => step.terms.some((term) => !term.k.length || term.k[0] < this.a.length)) };
  }

  described(step) {
    const { operation, fmt, code } = step, sums = ["fused", "sum"].includes(operation);
    const terms = sums ? step.terms.map((term, at) => this.term(term, at === step.terms.length - 1 ? "accumulator" : "product")) : this.operands(step);
    const kept = step.aligned ? step.aligned.map((each) => [each, step.last]) : terms.map((term) => [term.significand, term.last]);
    if (step.aligned) terms.forEach((term, at) => { term.lost = this.less([term.significand, term.last], kept[at]); });
    const ks = terms.flatMap((term) => term.k), special = terms.some((term) => term.special);
    const total = special ? null : kept.reduce((sum, each) => this.plus(sum, each), [0n, 0]), result = valueOf(code, fmt);
    const dropped = total && !result.special ? this.less(total, result.value) : [0n, 0];
    const where = ks.length ? [Math.min(...ks), Math.max(...ks) + 1] : [0, 0];
    const unit = step.aligned ? step.last : null;
    return { stage: "instruction", operation, k: where, terms, emax: step.emax, unit, total, dropped, code, format: fmt.name, mode: step.mode };
  }

  plus(x, y) {
    const last = Math.min(x[1], y[1]);
    return lowest(shifted(x[0], x[1] - last) + shifted(y[0], y[1] - last), last);
  }

  less(x, y) { return this.plus(x, [-y[0], y[1]]); }

  term(each, name) {
    const k = each.ks ?? [], special = each.special && each.negative && each.special === "inf" ? "-inf" : each.special;
    return { name, k, a: k.map((at) => this.row[at]), b: k.map((at) => this.column[at]), significand: each.significand, last: each.last, special };
  }

  operands({ operation, terms }) {
    if (operation !== "fma") return terms.map((term, at) => this.term(term, operation === "convert" ? "value" : ["sum", "c"][at]));
    return [this.term({ ...product(terms[0], terms[1]), ks: terms[0].ks }, "a * b"), this.term(terms[2], "accumulator")];
  }
}
