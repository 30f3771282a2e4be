// The sums of tensor cores in exact integers, as fastmma/numerics/reference.py has them; a step shows itself to `seen`.

const magnitude = (value) => (value < 0n ? -value : value);
const shifted = (value, by) => (by >= 0 ? value << BigInt(by) : value >> BigInt(-by));

function bitLength(value) {
  const digits = magnitude(value).toString(16);
  return value ? 4 * digits.length - Math.clz32(parseInt(digits[0], 16)) + 28 : 0;
}

// an element: significand * 2**last; its exponent is that of the fields
function number(code, fmt) {
  const bits = code & ((1n << BigInt(fmt.bits)) - 1n), plain = bits >> BigInt(fmt.padding);
  const fraction = BigInt(fmt.mantissa_bits), field = Number((plain >> fraction) & ((1n << BigInt(fmt.exponent_bits)) - 1n));
  const negative = fmt.signed && ((plain >> BigInt(fmt.mantissa_bits + fmt.exponent_bits)) & 1n) === 1n;
  const whole = plain & ((1n << BigInt(fmt.exponent_bits + fmt.mantissa_bits)) - 1n), first = BigInt(fmt.first_special);
  // formats without -0 have their one NaN in its place
  if (fmt.nan_is_negative_zero ? plain === BigInt(fmt.nan) : whole >= first) {
    const special = fmt.infinite && whole === first ? "inf" : "nan";
    return { significand: 0n, last: 0, exponent: 0, negative, special, code: bits, cancelled: false };
  }
  const hidden = field > 0 || !fmt.has_zero;
  const significand = (plain & ((1n << fraction) - 1n)) + (hidden ? 1n << fraction : 0n);
  const exponent = (hidden ? field : 1) - fmt.bias;
  return { significand: negative ? -significand : significand, last: exponent - fmt.mantissa_bits, exponent, negative, special: "", code: bits, cancelled: false };
}

function integer(code, fmt) {
  const bits = BigInt.asUintN(fmt.bits, code);
  return fmt.kind === "signed" ? BigInt.asIntN(fmt.bits, bits) : bits;
}

function rounded(value, shift, mode) {
  if (shift <= 0) return value << BigInt(-shift);
  const whole = value >> BigInt(shift), rest = value - (whole << BigInt(shift));
  if (mode === "rn") {
    const half = 1n << BigInt(shift - 1);
    return whole + (rest > half || (rest === half && whole & 1n) ? 1n : 0n);
  }
  if (mode === "ro") return whole | (rest ? 1n : 0n);
  return mode === "away" && rest ? whole + 1n : whole;
}

function signedRounded(value, shift, mode) {
  if (mode === "rm") return shifted(value, -shift);
  const found = rounded(magnitude(value), shift, mode);
  return value < 0n ? -found : found;
}

function flushed(code, fmt) {
  const value = number(code, fmt), size = magnitude(value.significand);
  if (value.special || !size || size >= 1n << BigInt(fmt.mantissa_bits)) return code;
  const zero = code & (1n << BigInt(fmt.exponent_bits + fmt.mantissa_bits + fmt.padding));
  return number(zero, fmt).special ? 0n : zero;
}

// the code of value * 2**last in a format; zero is +0
function roundTo(value, last, fmt, mode, keep = null) {
  if (!value) return 0n;
  const sign = value < 0n ? 1n << BigInt(fmt.bits - 1) : 0n, size = magnitude(value), fraction = keep ?? fmt.mantissa_bits;
  let exponent = Math.max(bitLength(size) - 1 + last, fmt.emin);
  const away = (mode === "rm" && sign) || (mode === "rp" && !sign);
  let whole = rounded(size, exponent - fraction - last, away ? "away" : mode);
  if (whole >> BigInt(fraction + 1)) [whole, exponent] = [whole >> 1n, exponent + 1];
  if (exponent > fmt.emax) {
    const stops = keep === null && (mode === "rz" || (mode === "rm" && !sign) || (mode === "rp" && sign));
    return sign | (BigInt(fmt.first_special) - (stops ? 1n : 0n));
  }
  if (!whole) return 0n;
  whole <<= BigInt(fmt.mantissa_bits - fraction);
  const field = whole >> BigInt(fmt.mantissa_bits) ? BigInt(exponent + fmt.bias) : 0n;
  return sign | (field << BigInt(fmt.mantissa_bits)) | (whole & ((1n << BigInt(fmt.mantissa_bits)) - 1n));
}

function specialSum(specials, nan, fmt) {
  const signs = new Set(specials.map((each) => each.negative));
  if (signs.size === 2 || specials.some((each) => each.special === "nan")) return BigInt(nan);
  return BigInt(fmt.first_special) | (signs.has(true) ? 1n << BigInt(fmt.bits - 1) : 0n);
}

const sumOf = (values) => values.reduce((all, each) => all + each, 0n);

function product(a, b) {
  const negative = a.negative !== b.negative, ks = a.ks ?? [];
  if (a.special || b.special) {
    const zero = [a, b].some((each) => !each.special && !each.significand);
    const nan = a.special === "nan" || b.special === "nan" || zero;
    return { significand: 0n, last: 0, exponent: 0, negative, special: nan ? "nan" : "inf", cancelled: false, ks };
  }
  const cancelled = a.cancelled && b.significand !== 0n;
  return { significand: a.significand * b.significand, last: a.last + b.last, exponent: a.exponent + b.exponent, negative, special: "", cancelled, ks };
}

class Adder {
  // `rule`: what an instruction computes; `formats` by their names
  constructor(rule, formats) {
    Object.assign(this, { rule, formats, fmt: formats[rule.sums], seen: null });
    this.of = Object.fromEntries(["a", "b", "c", "d"].map((name) => [name, formats[rule[name]]]));
  }

  show(step) {
    this.seen?.(step);
    return step.code;
  }

  add(x, y, fmt = this.fmt, mode = "rn") {
    return this.show({ operation: "add", terms: [x, y], code: this.sum(x, y, fmt, mode), fmt, mode });
  }

  sum(x, y, fmt, mode) {
    const specials = [x, y].filter((each) => each.special);
    if (specials.length) return specialSum(specials, fmt.nan, fmt);
    const last = Math.min(x.last, y.last), total = shifted(x.significand, x.last - last) + shifted(y.significand, y.last - last);
    if (!total) return (x.negative && y.negative) || (mode === "rm" && (x.negative || y.negative)) ? 1n << BigInt(fmt.bits - 1) : 0n;
    const code = roundTo(total, last, fmt, mode);
    return !code && total < 0n ? 1n << BigInt(fmt.bits - 1) : code;
  }

  fma(a, b, c, fmt, mode) {
    const nan = fmt.name === "f64" ? [b, c, a].find((each) => each.special === "nan") : undefined;
    const code = nan ? nan.code | (1n << BigInt(fmt.mantissa_bits - 1)) : this.sum(product(a, b), c, fmt, mode);
    return this.show({ operation: "fma", terms: [a, b, c], code, fmt, mode });
  }

  converted(value, fmt) {
    if (value.special) return specialSum([value], fmt.nan, fmt);
    const code = roundTo(value.significand, value.last, fmt, "rn");
    return !code && value.negative ? 1n << BigInt(fmt.bits - 1) : code;
  }

  convert(code, from, to) {
    const value = number(code, from);
    return this.show({ operation: "convert", terms: [value], code: this.converted(value, to), fmt: to, mode: "rn" });
  }

  aligned(terms) {
    const { emax_floor: floor, align_bits: bits, align_rounding: mode } = this.rule;
    const emax = terms.reduce((found, each) => (each.significand || each.cancelled ? Math.max(found, each.exponent) : found), floor);
    let last = emax - bits;
    if (mode === "exact") {
      const lasts = terms.filter((each) => each.significand).map((each) => each.last);
      last = lasts.length ? Math.min(...lasts) : 0;
    }
    return { emax, last, aligned: terms.map((each) => signedRounded(each.significand, last - each.last, mode)) };
  }

  fused(terms) {
    const { rule, fmt } = this, mode = rule.rounding, joins = rule.c_joins !== "terms";
    if (joins) terms = terms.map((each, at) => (at < terms.length - 1 ? this.held(each) : each));
    const specials = terms.filter((each) => each.special);
    if (specials.length) return this.show({ operation: "fused", terms, code: specialSum(specials, fmt.nan, fmt), fmt, mode });
    let emax, last, aligned, total, end;
    if (joins) ({ emax, last, aligned, total, end } = this.joined(terms.slice(0, -1), terms.at(-1)));
    else {
      ({ emax, last, aligned } = this.aligned(terms));
      [total, end] = [sumOf(aligned), last];
    }
    let code = roundTo(total, end, fmt, mode, rule.keep_bits);
    if (rule.flush_results) code = flushed(code, fmt);
    if (rule.negative_zero && total < 0n && !code) code = 1n << BigInt(fmt.bits - 1);
    return this.show({ operation: "fused", terms, code, fmt, mode, aligned, last, emax });
  }

  // a product that f32 cannot hold is an infinity where c joins the sum
  held(term) {
    return !term.special && bitLength(term.significand) + term.last > 128 ? { ...term, special: "inf" } : term;
  }

  // sums of products, of which halves have an alignment each, as one sum
  both(halves) {
    const emax = Math.max(...halves.map((half) => half.emax));
    if (halves.length === 1) return { emax, last: halves[0].last, sum: sumOf(halves[0].aligned) };
    const last = emax - this.rule.align_bits;
    return { emax, last, sum: sumOf(halves.map((half) => signedRounded(sumOf(half.aligned), last - half.last, "rm"))) };
  }

  joined(products, c) {
    const { rule, fmt } = this, ways = rule.c_joins === "halves" ? 2 : 1;
    const halves = [...Array(ways).keys()].map((way) => this.aligned(products.filter((_, at) => at % ways === way)));
    const before = this.both(halves), emax = Math.max(before.emax, c.exponent);
    const sumLast = emax - rule.join_bits - 1, cLast = emax - rule.align_bits;
    const counts = ways === 1 || c.exponent >= cLast - 1, sum = signedRounded(before.sum, sumLast - before.last, "rm");
    const kept = counts ? signedRounded(c.significand, cLast - c.last, "rm") : 0n, end = Math.min(sumLast, cLast);
    const total = shifted(sum, sumLast - end) + shifted(kept, cLast - end);
    const cut = Math.max(Math.max(bitLength(total) - 1 + end, fmt.emin) - rule.join_bits, end);
    const unit = Math.min(cLast, ...halves.map((half) => half.last));
    const aligned = products.map((_, at) => {
      const half = halves[at % ways];
      return shifted(half.aligned[Math.floor(at / ways)], half.last - unit);
    });
    return { emax, last: unit, aligned: [...aligned, shifted(kept, cLast - unit)], total: total >> BigInt(cut - end), end: cut };
  }

  steps(terms, c) {
    let total = c;
    for (let first = 0; first < terms.length; first += this.rule.terms) {
      total = number(this.fused([...terms.slice(first, first + this.rule.terms), total]), this.fmt);
    }
    return total.code;
  }

  lowered(terms, ks, c) {
    let total = 0n;
    for (const half of [0, 1]) {
      const own = terms.filter((_, at) => Math.floor(ks[at] / this.rule.split) % 2 === half);
      total = this.steps(own, number(total, this.fmt));
    }
    return this.add(number(total, this.fmt), number(c, this.fmt));
  }

  inTurns(terms, ks) {
    const { interleave, terms: size, group } = this.rule;
    if (!interleave) return terms;
    const count = terms.length / (size * group), turns = [...Array(count).keys()];
    return turns.flatMap((turn) => terms.filter((_, at) => Math.floor(ks[at] / interleave) % count === turn));
  }

  grouped(terms) {
    const size = this.rule.group, groups = [];
    for (let start = 0; start < terms.length; start += size) {
      const members = terms.slice(start, start + size), ks = members.flatMap((each) => each.ks);
      const specials = new Set(members.filter((each) => each.special).map((each) => (each.special === "nan" ? "nan" : each.negative)));
      if (specials.size) {
        const nan = specials.has("nan") || specials.size === 2, negative = specials.size === 1 && specials.has(true);
        groups.push({ significand: 0n, last: 0, exponent: 0, negative, special: nan ? "nan" : "inf", cancelled: false, ks });
        continue;
      }
      const last = Math.min(...members.map((each) => each.last));
      const total = members.reduce((sum, each) => sum + shifted(each.significand, each.last - last), 0n);
      const some = members.filter((each) => each.significand), exponent = some.length ? Math.max(...some.map((each) => each.exponent)) : 0;
      groups.push({ significand: total, last, exponent, negative: total < 0n, special: "", cancelled: !total && some.length > 0, ks });
    }
    return groups;
  }

  links(row, column, code, fmt, mode) {
    return row.reduce((total, x, at) => this.fma(x, column[at], number(total, fmt), fmt, mode), code);
  }

  chained(row, column, c) {
    const { chain, rounding_of_fma: mode } = this.rule, fmt = this.formats[chain.format], { c: from, d: to } = this.of;
    let total = from.name === fmt.name ? c : this.convert(c, from, fmt);
    if (!chain.products) total = this.links(row, column, total, fmt, mode);
    for (let first = 0; chain.products && first < row.length; first += chain.products) {
      const [x, y] = [row, column].map((each) => each.slice(first, first + chain.products));
      const part = this.links(x, y, BigInt(chain.start), fmt, "rn");
      total = this.add(number(total, fmt), number(part, fmt), fmt);
    }
    return to.name === fmt.name ? total : this.convert(total, fmt, to);
  }

  // an operand, +0 in place of a subnormal and of -0
  withoutSubnormal(value, fmt) {
    return !value.special && magnitude(value.significand) < 1n << BigInt(fmt.mantissa_bits) ? { ...number(0n, fmt), ks: value.ks } : value;
  }

  multiplied(x, y, fmt) {
    const value = product(x, y), code = this.converted(value, fmt);
    return this.show({ operation: "multiply", terms: [x, y], code, fmt, mode: "rn" });
  }

  // IEEE products, added in pairs and then to the sum so far
  paired(row, column, c) {
    const fmt = this.formats.f32, result = (code) => number(flushed(code, fmt), fmt);
    const [left, right] = [[row, this.of.a], [column, this.of.b]].map(([line, of]) => line.map((each) => this.withoutSubnormal(each, of)));
    let total = this.withoutSubnormal(number(c, fmt), fmt);
    for (let start = 0; start < left.length; start += this.rule.terms) {
      const at = [...Array(this.rule.terms).keys()].map((turn) => start + turn);
      let sums = at.map((place) => result(this.multiplied(left[place], right[place], fmt)));
      while (sums.length > 1) sums = sums.flatMap((each, place) => (place % 2 ? [] : [result(this.add(each, sums[place + 1], fmt))]));
      total = result(this.add(total, sums[0], fmt));
    }
    return total.code;
  }

  integers(row, column, ks, c) {
    const operation = { "": (x, y) => x * y, xor: (x, y) => x ^ y, and: (x, y) => x & y }[this.rule.bit_op];
    const plain = (significand, of) => ({ significand, last: 0, exponent: 0, special: "", ks: of, code: BigInt.asUintN(32, significand) });
    const terms = row.map((x, at) => plain(operation(x, column[at]), [ks[at]])), start = BigInt.asIntN(32, c);
    let total = terms.reduce((sum, each) => sum + each.significand, start);
    const most = (1n << 31n) - 1n, { saturates } = this.rule;
    if (saturates) total = total > most ? most : total < -most - 1n ? -most - 1n : total;
    const code = BigInt.asUintN(32, total), mode = saturates ? "saturate" : "wrap";
    return this.show({ operation: "sum", terms: [...terms, plain(start, [])], code, fmt: this.of.d, mode });
  }

  // elements of one operand, which a wider format or zeros in place of subnormals may change
  decoded(codes, fmt, flushes = this.rule.flush_inputs) {
    const read = flushes ? codes.map((code) => flushed(code, fmt)) : codes, wide = this.formats[this.rule.widened];
    if (fmt.kind !== "float") return read.map((code) => integer(code, fmt));
    return read.map((code) => (wide ? number(this.converted(number(code, fmt), wide), wide) : number(code, fmt)));
  }

  // the code of an element: a row of A and the elements of B's column that meet it, at places ks of k
  element(a, b, c, ks, scales = null) {
    const { rule } = this, { a: first, b: second, c: from, d: to } = this.of;
    let [row, column] = [this.decoded(a, first), this.decoded(b, second)];
    if (rule.sum === "integers") return this.integers(row, column, ks, c);
    row = row.map((each, at) => ({ ...each, ks: [ks[at]] }));
    if (rule.sum === "trees") return this.paired(row, column, c);
    if (rule.sum === "chain") return this.chained(row, column, c);
    const given = rule.flush_inputs ? flushed(c, from) : c;
    const start = from.name === this.fmt.name ? given : this.convert(given, from, this.fmt);
    let terms = this.inTurns(row.map((each, at) => product(each, column[at])), ks);
    if (rule.group > 1) terms = this.grouped(terms);
    if (rule.by_scales) terms = terms.map((each) => ({ ...each, exponent: 0 }));
    if (scales) terms = this.scaled(terms, scales);
    const total = rule.split ? this.lowered(terms, ks, start) : this.steps(terms, rule.native_c ? number(given, from) : number(start, this.fmt));
    return to.name === this.fmt.name ? total : this.convert(total, this.fmt, to);
  }

  scaled(terms, scales) {
    const [first, second] = scales.map((codes) => this.decoded(codes, this.formats[this.rule.scale], false));
    const share = terms.length / first.length, at = (index) => Math.floor(index / share);
    return terms.map((each, index) => product(product(each, first[at(index)]), second[at(index)]));
  }
}
