// The first half of the page: an instruction, its operands as grids, and what a cell is.

// what of an operand feeds the element of d in a row and a column; and what of d an element of an operand feeds
const FEEDS = {
  a: (row, col) => (r) => r === row, metadata: (row, col) => (r) => r === row, scale_a: (row, col) => (r) => r === row,
  b: (row, col) => (_, c) => c === col, scale_b: (row, col) => (_, c) => c === col,
  c: (row, col) => (r, c) => r === row && c === col, d: (row, col) => (r, c) => r === row && c === col,
};
const OUTPUTS = ["c", "d"];
const ON_PAPER = ["c", "b", "a", "d", "metadata", "scale_a", "scale_b", "r"];
const SECOND = ["b", "d", "scale_b"];

class Layouts {
  constructor(data, address) {
    Object.assign(this, { data, address, cache: new Map(), state: { opcode: "", operand: "all", cell: null, matrix: 0, choice: 0 } });
    this.byOpcode = new Map(data.instructions.map((each) => [each[0], each]));
    const heard = { "#filter": ["input", () => this.list()], "#zoom": ["input", () => this.fit(Number($("#zoom").value))] };
    for (const [where, [event, call]] of Object.entries(heard)) $(where).addEventListener(event, call);
    this.choices = new Choices($("#instruction"), (opcode) => this.go({ opcode, cell: null, matrix: 0, choice: 0 }));
    $("#filter").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.choices.choose(0);
      else if (event.key === "ArrowDown") $("#instruction").focus();
      else return;
      event.preventDefault();
    });
    for (const name of ["matrix", "choice"]) $(`#${name}`).addEventListener("change", (event) => this.go({ [name]: Number(event.target.value) }));
    window.addEventListener("resize", () => this.grids && this.fit());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.grids && this.fit());
    this.list();
  }

  // every word of the filter stands in the opcode or in CuTe's name
  list() {
    const words = $("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.data.instructions.filter(([opcode, , , atoms]) => {
      const text = `${opcode} ${atoms.join(" ")}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    this.choices.fill(found.map(([opcode]) => [opcode, breakable(opcode.replace(".sync.aligned", ""))]), this.state.opcode);
    $("#found").textContent = `${found.length} of ${this.data.instructions.length} instructions`;
  }

  // from an address: what it does not say is as at first
  restore(given) {
    const opcode = this.byOpcode.has(given.get("opcode")) ? given.get("opcode") : FIRST_OPCODE;
    const cell = /^(\w+),(\d+),(\d+)$/.exec(given.get("cell") || "");
    this.state = {
      opcode, operand: given.get("operand") || "all", matrix: Number(given.get("matrix")) || 0, choice: Number(given.get("choice")) || 0,
      cell: cell && { operand: cell[1], row: Number(cell[2]), col: Number(cell[3]) },
    };
    this.show();
    if (given.has("opcode")) this.choices.reveal();
  }

  go(change) {
    Object.assign(this.state, change);
    this.show();
    this.tellAddress();
  }

  tellAddress() {
    const { opcode, operand, cell, matrix, choice } = this.state;
    const told = { opcode, operand: operand === "all" ? "" : operand, cell: cell ? `${cell.operand},${cell.row},${cell.col}` : "", matrix, choice };
    this.address(Object.entries(told).filter(([, value]) => value));
  }

  layout(number) {
    if (!this.cache.has(number)) this.cache.set(number, new Layout(this.data.layouts[number]));
    return this.cache.get(number);
  }

  // the operands with the layouts that the selectors choose
  operands(instruction) {
    return instruction[1].map((number) => {
      const operand = this.data.operands[number];
      if (operand.memory) return { ...operand, rows: operand.shape[0], cols: operand.shape[1] };
      const [, layout] = operand.places[Math.min(this.state.choice, operand.places.length - 1)];
      const laid = this.layout(layout);
      return { ...operand, laid, rows: laid.rows, cols: laid.cols };
    }).sort((x, y) => ON_PAPER.indexOf(x.name) - ON_PAPER.indexOf(y.name));
  }

  show() {
    const instruction = this.byOpcode.get(this.state.opcode), [opcode, , equation, atoms] = instruction;
    this.every = this.operands(instruction);
    this.equation = equation < 0 ? "" : this.data.equations[equation];
    if (![...this.every.map((each) => each.name), "all"].includes(this.state.operand)) this.state.operand = "all";
    this.bound();
    $("#opcode").textContent = opcode;
    $("#atoms").replaceChildren(...atoms.map((name) => make("li", {}, `CuTe ${name}`)));
    $("#equation").textContent = this.equation;
    this.choices.mark(opcode);
    const names = ["all", ...this.every.map((each) => each.name)];
    $("#operands").replaceChildren(...names.map((name) => {
      const button = make("button", { type: "button", "aria-pressed": name === this.state.operand }, name);
      button.addEventListener("click", () => this.go({ operand: name }));
      return button;
    }));
    this.offer("matrix", Array.from({ length: this.tiles() }, (_, tile) => `${tile}`), this.state.matrix);
    const choices = this.every.reduce((most, each) => ((each.places || []).length > most.length ? each.places.map(([told]) => told) : most), []);
    this.offer("choice", choices, this.state.choice);
    this.draw();
    this.tell(this.state.cell);
  }

  tiles() { return Math.max(1, ...this.every.map((each) => (each.laid ? each.laid.tiles : 1))); }

  // a cell or a matrix that the instruction does not have is none
  bound() {
    const { cell } = this.state, operand = cell && this.every.find((each) => each.name === cell.operand);
    if (!operand || cell.row >= operand.rows || cell.col >= operand.cols) this.state.cell = null;
    this.state.matrix = Math.min(this.state.matrix, this.tiles() - 1);
  }

  offer(name, texts, chosen) {
    $(`#${name}-of`).hidden = texts.length < 2;
    $(`#${name}`).replaceChildren(...texts.map((text, number) => new Option(text, number, false, number === chosen)));
  }

  // the operands to draw: c and d are one where they lie alike
  shown() {
    const { operand } = this.state;
    if (operand !== "all") return this.every.filter((each) => each.name === operand);
    const [c, d] = OUTPUTS.map((name) => this.every.find((each) => each.name === name));
    const alike = c && d && c.kind === d.kind && c.laid === d.laid;
    return alike ? this.every.filter((each) => each !== c).map((each) => (each === d ? { ...d, title: "c and d" } : each)) : this.every;
  }

  draw() {
    const shown = this.shown();
    this.grids = shown.map((operand) => {
      const held = operand.memory ? `in ${operand.memory}` : `${operand.kind}`;
      const grid = new Grid({ ...operand, title: `${operand.title || operand.name}, ${operand.rows} × ${operand.cols} ${held}`, cell: (row, col) => this.held(operand, row, col) }, this.data.colours, {
        over: (place) => this.tell(place ? { operand: operand.name, row: place[0], col: place[1] } : this.state.cell),
        chosen: (place) => this.choose(operand.name, place),
      });
      grid.name = operand.name;
      grid.element.dataset.operand = operand.name;
      grid.element.classList.toggle("second", SECOND.includes(operand.name));
      return grid;
    });
    $("#grids").classList.toggle("single", this.grids.length === 1);
    $("#grids").replaceChildren(...this.grids.map((grid) => grid.element));
    this.light();
    this.fit();
  }

  // as large as there is room for, and large enough to read
  room() {
    const across = (second) => this.grids.filter((each) => SECOND.includes(each.name) === second || this.grids.length === 1);
    const widest = (grids) => Math.max(0, ...grids.map((each) => each.extent.cells));
    const cells = this.grids.length === 1 ? widest(this.grids) : widest(across(false)) + widest(across(true));
    const room = $("#grids").clientWidth - 30 - 2 * HEAD.width;
    return Math.min(1, Math.max(0.75, room / cells));
  }

  held(operand, row, col) {
    if (operand.memory) return null;
    const place = operand.laid.at(row, col, Math.min(this.state.matrix, operand.laid.tiles - 1))[0];
    return { lane: place.lane, head: `${operand.holder}${place.lane}`, tail: operand.laid.name(operand.sigil, place) };
  }

  choose(name, [row, col]) {
    const { cell } = this.state, again = cell && cell.operand === name && cell.row === row && cell.col === col;
    this.state.cell = again ? null : { operand: name, row, col };
    this.light();
    for (const grid of this.grids) grid.paint();
    this.tell({ operand: name, row, col });
    this.tellAddress();
  }

  // what feeds an output, or what an element feeds
  light() {
    const { cell } = this.state;
    for (const grid of this.grids) {
      grid.marked = cell && cell.operand === grid.name ? [cell.row, cell.col] : null;
      grid.lit = cell && this.equation ? this.related(cell, grid.name) : null;
    }
  }

  // scroll every grid until what is lit in it is in view
  reveal() {
    const { cell } = this.state;
    if (!cell) return;
    for (const grid of this.grids) {
      const within = (place, count) => Math.min(place, count - 1);
      const [rows, cols] = [grid.operand.rows, grid.operand.cols];
      const row = ["b", "scale_b"].includes(grid.name) && grid.name !== cell.operand ? 0 : within(cell.row, rows);
      const col = ["a", "metadata", "scale_a"].includes(grid.name) && grid.name !== cell.operand ? 0 : within(cell.col, cols);
      grid.reveal([row, col], true);
    }
  }

  related(cell, name) {
    const feeds = FEEDS[cell.operand], itself = name === cell.operand;
    if (OUTPUTS.includes(cell.operand)) return FEEDS[name](cell.row, cell.col);
    if (itself) return (row, col) => row === cell.row && col === cell.col;
    return OUTPUTS.includes(name) ? feeds(cell.row, cell.col) : () => false;
  }

  fit(zoom = this.room()) {
    $("#zoom").value = zoom;
    for (const grid of this.grids) grid.ask(zoom);
    for (const grid of this.grids) grid.fill();
    this.reveal();
  }

  tell(cell) {
    const panel = $("#cell"), operand = cell && this.every.find((each) => each.name === cell.operand);
    if (!operand) {
      const hint = this.equation ? "Point at a cell. Choose one of d, and what feeds it lights up." : "Point at a cell.";
      panel.replaceChildren(make("p", { class: "note" }, hint));
      return;
    }
    const rows = operand.memory ? [["lies in", operand.memory]] : this.facts(operand, cell);
    if (this.equation && OUTPUTS.includes(cell.operand)) {
      rows.push(["fed by", this.equation.replaceAll("[row]", `[${cell.row}]`).replaceAll("[col]", `[${cell.col}]`)]);
    }
    const list = make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
    panel.replaceChildren(make("strong", {}, `${operand.name}[${cell.row}][${cell.col}]`), list);
  }

  facts(operand, cell) {
    const { laid, holder, sigil, register } = operand, places = laid.at(cell.row, cell.col, Math.min(this.state.matrix, laid.tiles - 1));
    const lane = holder === "L" ? "TMEM lane" : "lane";
    const facts = places.flatMap((place) => {
      const warp = place.lane >= 32 ? `, ${holder === "L" ? "reached by warp" : "warp"} ${Math.floor(place.lane / 32) % 4}` : "";
      const bits = `${place.bit + laid.bits - 1}:${place.bit}`;
      return [[lane, `${place.lane}${warp}`], [register, `${sigil}${place.register}, bits ${bits}`], ["element", `i = ${place.element}`]];
    });
    if (laid.tiles > 1) facts.push([operand.tile, `${this.state.matrix}`]);
    return [...facts, ...Object.entries(laid.formulas).map(([name, text]) => [name === "holds" ? "lanes with" : name, name === "holds" ? text : `= ${text}`])];
  }
}
