// The page of one sum: two GPUs, numbers, and where the two part.

const known = data("known");
const MOST = 128;
const SIDE = 32;

const kindNamed = (name) => known.kinds.find((each) => each.name === name) ?? known.kinds[0];

function parse(text) {
  return text.split(/[\s,;]+/).filter(Boolean).map((word) => {
    const found = /^(?:([-+]?[\d.]+(?:e[-+]?\d+)?)(?:\*2\^([-+]?\d+))?|([-+]?)2\^([-+]?\d+))$/i.exec(word);
    if (!found || (found[1] && !Number.isFinite(Number(found[1])))) throw new Error(`${word} is no number`);
    const [significand, last] = found[1] ? exact(Number(found[1])) : [found[3] === "-" ? -1n : 1n, 0];
    const power = Number(found[2] ?? found[4] ?? 0);
    if (Math.abs(power) > 2000) throw new Error(`${word} is too large or too small`);
    return [significand, last + power];
  });
}

function written(code, fmt) {
  const { value: [significand, last], special } = valueOf(code, fmt);
  if (special || !significand) return special || "0";
  const plain = Number(significand) * 2 ** last;
  if (last >= -4 && Math.abs(plain) < 65536) return `${plain}`;
  const one = significand === 1n || significand === -1n;
  return one ? `${significand < 0n ? "-" : ""}2^${last}` : `${significand}*2^${last}`;
}

class Sum {
  constructor() {
    for (const kind of known.kinds) $("#kind").append(new Option(kind.title, kind.name));
    $("#kind").addEventListener("change", () => { this.choose($("#kind").value); this.part(); });
    for (const at of [0, 1]) $(`#gpu-${at}`).addEventListener("change", () => this.fromText());
    for (const name of ["a", "b"]) $(`#${name}`).addEventListener("input", () => this.fromText());
    $("#part").addEventListener("click", () => this.part());
    $("#random").addEventListener("click", () => this.random());
    $("#drawn").addEventListener("click", () => this.picture(drawnImage()));
    $("#file").addEventListener("change", (event) => readImage(event.target.files[0]).then((pixels) => this.picture(pixels)));
    $("#result").addEventListener("click", (event) => this.pick(event));
  }

  get kind() { return kindNamed($("#kind").value); }

  get targets() { return [0, 1].map((at) => $(`#gpu-${at}`).value); }

  ruleOf(target) { return this.kind.rules[this.kind.targets[target].rule]; }

  get formats() { return ["a", "b"].map((name) => known.formats[this.ruleOf(this.targets[0])[name]]); }

  // the type, and its GPUs: those that were chosen, if they have it
  choose(name, wanted = this.targets) {
    const kind = kindNamed(name), names = Object.keys(kind.targets), first = names.indexOf("sm_90a") < 0 ? names[0] : "sm_90a";
    const other = names.find((each) => kind.targets[each].rule !== kind.targets[first].rule) ?? names.at(-1);
    $("#kind").value = kind.name;
    [first, other].forEach((usual, at) => {
      $(`#gpu-${at}`).replaceChildren(...names.map((each) => new Option(`${known.gpus[each]} (${each})`, each)));
      $(`#gpu-${at}`).value = names.includes(wanted[at]) ? wanted[at] : usual;
    });
  }

  elements(a, b) { return this.targets.map((target) => new Element(this.ruleOf(target), known.formats, a, b)); }

  fromText() {
    $("#refused").textContent = "";
    try {
      const numbers = ["a", "b"].map((name) => parse($(`#${name}`).value));
      if (numbers[0].length !== numbers[1].length) throw new Error(`a has ${numbers[0].length} numbers, and b ${numbers[1].length}`);
      if (!numbers[0].length || numbers[0].length > MOST) throw new Error(`1 to ${MOST} products are shown, not ${numbers[0].length}`);
      const [a, b] = numbers.map((each, at) => each.map((value) => encode(value, this.formats[at])));
      this.show(a, b);
    } catch (error) {
      $("#refused").textContent = error.message;
    }
  }

  put(a, b) {
    [a, b].forEach((codes, at) => { $(`#${"ab"[at]}`).value = codes.map((code) => written(code, this.formats[at])).join(", "); });
    this.show(a, b);
  }

  show(a, b) {
    const found = this.elements(a, b).map((each) => ({ element: each, ...each.explained() }));
    const differ = found[0].code !== found[1].code, lost = found.map(({ steps }) => losses(steps));
    const parted = [...new Set([...lost[0].keys(), ...lost[1].keys()])].filter((k) => lost[0].get(k) !== lost[1].get(k));
    const [one, other] = this.targets.map((target) => known.gpus[target]);
    const said = differ ? `${one} and ${other} have other bits.` : `${one} and ${other} have the same bits here.`;
    const why = parted.length ? ` They part at k = ${parted.join(", ")}: what is right of the red line is lost, and the lines lie apart.` : "";
    $("#told").replaceChildren(make("p", { class: differ ? "other" : "same" }, said + why));
    $("#steps").replaceChildren(...found.flatMap((each, at) => this.side(each, this.targets[at], parted)));
    const places = a.map((_, k) => k).filter((k) => a[k] || b[k]);
    const sum = places.map((k) => [k, a[k].toString(16), b[k].toString(16)].join(".")).join("_");
    setAddress([["type", this.kind.name], ["gpus", this.targets.join(",")], ["k", `${a.length}`], ["sum", sum]]);
  }

  side({ element, code, steps }, target, parted) {
    const { instruction, arithmetic, known: level } = this.kind.targets[target], fmt = element.fmt;
    const title = `${known.gpus[target]}: ${written(code, fmt)} = 0x${hexOf(code, fmt)} (${fmt.name})`;
    const bars = steps.map((step, index) => new Bars(step, index, parted).svg());
    return [make("h2", {}, title), make("p", { class: "note" }, `${instruction}, ${arithmetic}; ${level}`), ...bars];
  }

  random() {
    const [first, second] = this.formats, count = Math.max(...this.targets.map((target) => this.ruleOf(target).k));
    const draw = (fmt) => encode(exact(fmt.kind === "float" ? (Math.random() * 2 - 1) * 2 ** Math.round(Math.random() * 8 - 6) : Math.round(Math.random() * 254 - 127)), fmt);
    this.put(...[first, second].map((fmt) => Array.from({ length: count }, () => draw(fmt))));
  }

  // a large product, its opposite, and small ones at all distances, until one shows
  part() {
    const [first, second] = this.formats, count = Math.max(...this.targets.map((target) => this.ruleOf(target).k));
    const fill = (values, fmt) => Array.from({ length: count }, (_, k) => (k in values ? encode(values[k], fmt) : 0n));
    let shown = [fill([[1n, 0], [1n, 0]], first), fill([[1n, 0], [-1n, 0]], second)];
    search: for (const places of [[0, 1, 2], [0, 1, count - 1], [0, count >> 1, count - 1], [count - 1, 0, count >> 1]]) {
      for (let far = 8; far < 60; far += 1) {
        const high = Math.min(6, first.emax ?? 6), values = [{}, {}];
        [[3n, high], [-3n, high], [1n, high + 6 - far]].forEach(([significand, last], at) => {
          values[0][places[at]] = [significand, at < 2 ? last - 1 : Math.max(last - 6, (first.emin ?? 0) - (first.mantissa_bits ?? 0))];
          values[1][places[at]] = [1n, at < 2 ? 0 : last - Math.max(last - 6, (first.emin ?? 0) - (first.mantissa_bits ?? 0)) - 6];
        });
        const [a, b] = [fill(values[0], first), fill(values[1], second)];
        const codes = this.elements(a, b).map((each) => each.code());
        if (codes[0] !== codes[1]) {
          shown = [a, b];
          break search;
        }
      }
    }
    this.put(...shown);
  }

  // an image as the matrix a, times a blur
  picture(pixels) {
    const [first, second] = this.formats, scale = first.kind === "float" ? (value) => value : (value) => Math.round(value * 127);
    this.rows = pixels.map((row) => row.map((value) => encode(exact(scale(value)), first)));
    this.columns = Array.from({ length: SIDE }, (_, j) =>
      Array.from({ length: SIDE }, (__, k) => encode(exact(scale(Math.exp(-((k - j) ** 2) / 8) / 5)), second)));
    this.marks = this.rows.map((row) => this.columns.map((column) => {
      const codes = this.elements(row, column).map((each) => each.code());
      return { value: valueOf(codes[0], this.elements(row, column)[0].fmt).value, differs: codes[0] !== codes[1] };
    }));
    $("#image").hidden = false;
    paint($("#pixels"), pixels.map((row) => row.map((value) => ({ value, differs: false }))));
    const plain = this.marks.map((row) => row.map(({ value, differs }) => ({ value: Number(value[0]) * 2 ** value[1], differs })));
    paint($("#result"), plain);
    const count = plain.flat().filter((each) => each.differs).length;
    $("#counted").textContent = `${count} of ${SIDE * SIDE} elements have other bits`;
    const at = this.marks.flatMap((row, i) => row.map((each, j) => [each.differs, i, j])).find(([differs]) => differs) ?? [false, 0, 0];
    this.put(this.rows[at[1]], this.columns[at[2]]);
  }

  pick(event) {
    const box = event.target.getBoundingClientRect(), place = (from, size, at) => Math.min(Math.max(Math.floor(((at - from) / size) * SIDE), 0), SIDE - 1);
    this.put(this.rows[place(box.top, box.height, event.clientY)], this.columns[place(box.left, box.width, event.clientX)]);
  }

  restore(given) {
    const kind = kindNamed(given.get("type")), length = Number(given.get("k"));
    this.choose(kind.name, (given.get("gpus") ?? "").split(","));
    const parts = (given.get("sum") ?? "").split("_").map((part) => part.split("."));
    const valid = length > 0 && length <= MOST && parts.every(([k, ...codes]) => Number(k) < length && codes.length === 2 && codes.every((code) => /^[0-9a-f]{1,16}$/.test(code)));
    if (!valid) return this.part();
    const lines = [0, 1].map(() => Array(length).fill(0n));
    for (const [k, ...codes] of parts) codes.forEach((code, at) => { lines[at][Number(k)] = BigInt.asUintN(this.formats[at].bits, BigInt(`0x${code}`)); });
    return this.put(...lines);
  }
}

// what alignment takes of each product, by k
function losses(steps) {
  const found = new Map();
  for (const { terms } of steps) for (const { k, lost } of terms) for (const place of k) if (lost && lost[0]) found.set(place, lost.join("e"));
  return found;
}

// an image drawn by code: a disc, a ramp and stripes
function drawnImage() {
  return Array.from({ length: SIDE }, (_, i) => Array.from({ length: SIDE }, (__, j) => {
    const inside = (i - 11) ** 2 + (j - 11) ** 2 < 64, stripe = j > 21 && i % 4 < 2;
    return inside ? 1 - i / 64 : stripe ? 0.8 : (i + j) / 640 + 0.01;
  }));
}

async function readImage(file) {
  const bitmap = await createImageBitmap(file), canvas = make("canvas", { width: SIDE, height: SIDE });
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, SIDE, SIDE);
  const { data: bytes } = context.getImageData(0, 0, SIDE, SIDE);
  const grey = (at) => (0.299 * bytes[at] + 0.587 * bytes[at + 1] + 0.114 * bytes[at + 2]) / 255;
  return Array.from({ length: SIDE }, (_, i) => Array.from({ length: SIDE }, (__, j) => grey(4 * (i * SIDE + j))));
}

function paint(canvas, values) {
  const context = canvas.getContext("2d"), size = canvas.width / SIDE, most = Math.max(...values.flat().map((each) => each.value), 1e-30);
  values.forEach((row, i) => row.forEach(({ value, differs }, j) => {
    const grey = Math.round((255 * Math.max(value, 0)) / most);
    context.fillStyle = `rgb(${grey}, ${grey}, ${grey})`;
    context.fillRect(j * size, i * size, size, size);
    context.strokeStyle = "#d62728";
    if (differs) context.strokeRect(j * size + 1, i * size + 1, size - 2, size - 2);
  }));
}

const sum = new Sum();
const fromAddress = () => sum.restore(new URLSearchParams(location.hash.slice(1)));
window.addEventListener("popstate", fromAddress);
window.addEventListener("hashchange", fromAddress);
fromAddress();
