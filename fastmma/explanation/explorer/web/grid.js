// A matrix as a grid of cells on a canvas, of which only the part in view is drawn.

const CELL = { width: 44, height: 30 };
const HEAD = { width: 30, height: 18 };

class Grid {
  // operand: {title, rows, cols, cell(row, col) -> {lane, head, tail} or null}; heard: {over(row, col), chosen(row, col)}
  constructor(operand, colours, heard) {
    Object.assign(this, { operand, colours, heard, zoom: 1, marked: null, lit: null, over: null });
    this.element = document.createElement("div");
    this.element.className = "operand";
    const title = document.createElement("h3");
    title.textContent = operand.title;
    this.view = document.createElement("div");
    this.view.className = "view";
    this.view.tabIndex = 0;
    this.view.setAttribute("role", "grid");
    this.view.setAttribute("aria-label", operand.title);
    this.canvas = document.createElement("canvas");
    this.whole = document.createElement("div");
    this.whole.append(this.canvas);
    this.view.append(this.whole);
    this.element.append(title, this.view);
    this.view.addEventListener("scroll", () => this.paint());
    this.view.addEventListener("pointermove", (event) => this.hover(this.under(event)));
    this.view.addEventListener("pointerleave", () => this.hover(null));
    this.view.addEventListener("click", (event) => this.choose(this.under(event)));
    this.view.addEventListener("keydown", (event) => this.key(event));
  }

  // pixels across at a zoom of 1, and what of it does not grow
  get extent() { return { cells: this.operand.cols * CELL.width, head: HEAD.width }; }

  get cell() { return { width: CELL.width * this.zoom, height: CELL.height * this.zoom }; }

  get size() {
    return { width: HEAD.width + this.operand.cols * this.cell.width, height: HEAD.height + this.operand.rows * this.cell.height };
  }

  // take as much room as the matrix needs; the page gives less where it has less
  ask(zoom) {
    this.zoom = zoom;
    const { width, height } = this.size;
    this.whole.style.width = `${width}px`;
    this.whole.style.height = `${height}px`;
    this.canvas.style.width = this.canvas.style.height = "0px";
  }

  // fill the room that was given
  fill() {
    const { width, height } = this.size;
    const cut = this.view.clientWidth < width - 2 || this.view.clientHeight < height - 2;
    this.view.classList.toggle("cut", cut);
    this.seen = { width: Math.min(width, this.view.clientWidth), height: Math.min(height, this.view.clientHeight) };
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.seen.width * ratio);
    this.canvas.height = Math.round(this.seen.height * ratio);
    this.canvas.style.width = `${this.seen.width}px`;
    this.canvas.style.height = `${this.seen.height}px`;
    this.paint();
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left - HEAD.width, y = event.clientY - box.top - HEAD.height;
    const col = Math.floor((x + this.view.scrollLeft) / this.cell.width), row = Math.floor((y + this.view.scrollTop) / this.cell.height);
    return x < 0 || y < 0 || row >= this.operand.rows || col >= this.operand.cols ? null : [row, col];
  }

  hover(place) {
    if (String(place) === String(this.over)) return;
    this.over = place;
    this.paint();
    this.heard.over(place);
  }

  choose(place) { if (place) this.heard.chosen(place); }

  key(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Enter" && this.over) this.choose(this.over);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const [row, col] = this.over || [-1, -1], [down, right] = steps[event.key];
    const within = (place, count) => Math.max(0, Math.min(count - 1, place));
    this.hover(this.over ? [within(row + down, this.operand.rows), within(col + right, this.operand.cols)] : [0, 0]);
    this.reveal(this.over);
  }

  // scroll until a cell is in view, as little as that takes, or until it is in the middle
  reveal([row, col], middle = false) {
    const { width, height } = this.cell;
    const room = { width: this.seen.width - HEAD.width, height: this.seen.height - HEAD.height };
    const into = (at, start, extent, length) => {
      if (at >= start && at + length <= start + extent) return start;
      if (middle) return at - (extent - length) / 2;
      return at < start ? at : at + length - extent;
    };
    this.view.scrollLeft = into(col * width, this.view.scrollLeft, room.width, width);
    this.view.scrollTop = into(row * height, this.view.scrollTop, room.height, height);
    this.paint();
  }

  isLit(row, col) { return !this.lit || this.lit(row, col); }

  paint() {
    if (!this.seen) return;
    const context = this.canvas.getContext("2d"), ratio = window.devicePixelRatio || 1, { width, height } = this.cell;
    const { scrollLeft, scrollTop } = this.view, style = getComputedStyle(document.body), colour = (name) => style.getPropertyValue(name);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colour("--paper");
    context.fillRect(0, 0, this.seen.width, this.seen.height);
    const rows = this.inView(scrollTop, this.seen.height - HEAD.height, height, this.operand.rows);
    const cols = this.inView(scrollLeft, this.seen.width - HEAD.width, width, this.operand.cols);
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.within(context, HEAD.width, HEAD.height, () => {
      context.translate(HEAD.width - scrollLeft, HEAD.height - scrollTop);
      for (const row of rows) for (const col of cols) this.paintCell(context, row, col, colour);
      if (this.marked) this.frame(context, this.marked, colour("--unit"));
      if (this.over) this.frame(context, this.over, colour("--ink"));
    });
    context.fillStyle = colour("--faint");
    context.font = "11px system-ui, sans-serif";
    const every = Math.max(1, Math.ceil(22 / width)), down = Math.max(1, Math.ceil(12 / height));
    this.within(context, HEAD.width, 0, () => {
      for (const col of cols) if (col % every === 0) context.fillText(col, HEAD.width - scrollLeft + (col + 0.5) * width, HEAD.height / 2);
    });
    context.textAlign = "right";
    this.within(context, 0, HEAD.height, () => {
      for (const row of rows) if (row % down === 0) context.fillText(row, HEAD.width - 6, HEAD.height - scrollTop + (row + 0.5) * height);
    });
  }

  // paint to the right of x and below y only
  within(context, x, y, paint) {
    context.save();
    context.beginPath();
    context.rect(x, y, this.seen.width, this.seen.height);
    context.clip();
    paint();
    context.restore();
  }

  inView(start, extent, size, count) {
    const first = Math.max(0, Math.floor(start / size)), last = Math.min(count, Math.ceil((start + extent) / size));
    return Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  }

  paintCell(context, row, col, colour) {
    const { width, height } = this.cell, held = this.operand.cell(row, col), lit = this.isLit(row, col);
    context.globalAlpha = lit ? 1 : 0.28;
    context.fillStyle = held ? this.colours[held.lane % this.colours.length] : colour("--memory");
    context.fillRect(col * width, row * height, width - (width > 14 ? 1 : 0), height - (height > 14 ? 1 : 0));
    if (held && this.zoom >= 0.7) {
      context.fillStyle = colour("--on-colours");
      context.font = `bold ${Math.round(11 * this.zoom)}px system-ui, sans-serif`;
      context.fillText(held.head, (col + 0.5) * width, (row + 0.31) * height);
      context.font = `${Math.round(10 * this.zoom)}px system-ui, sans-serif`;
      context.fillText(held.tail, (col + 0.5) * width, (row + 0.71) * height);
    }
    context.globalAlpha = 1;
  }

  frame(context, [row, col], colour) {
    const { width, height } = this.cell;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.strokeRect(col * width, row * height, width - 1, height - 1);
  }
}
