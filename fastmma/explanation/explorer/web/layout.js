// A layout in the registers of a warp: from its modes to where each element is held.

const PARTS = { 16: "h", 8: "b", 4: "n", 1: "p" };

class Layout {
  constructor(data) {
    Object.assign(this, data);
    [this.rows, this.cols] = data.shape;
    this.elements = data.element.reduce((total, mode) => total * mode[0], 1);
    this.registerBits = Math.max(32, this.bits);
    this.perRegister = this.registerBits / this.bits;
    this.lanes = this.numbers();
    this.places = this.inverse();
  }

  // the numbers of the lanes that hold anything
  numbers() {
    if (!this.digits.length) {
      const count = this.lane.reduce((total, mode) => total * mode[0], 1);
      return Array.from({ length: count }, (_, index) => this.base + index);
    }
    let numbers = [this.base], place = 1;
    for (const [size, moves] of this.digits) {
      if (moves) numbers = Array.from({ length: size }, (_, digit) => numbers.map((number) => number + digit * place)).flat();
      place *= size;
    }
    return numbers;
  }

  // row, column and matrix that a mixed-radix number adds
  static walk(modes) {
    let places = [[0, 0, 0]];
    for (const [size, row, col, tile] of modes) {
      places = Array.from({ length: size }, (_, digit) =>
        places.map((place) => [place[0] + digit * row, place[1] + digit * col, place[2] + digit * tile])).flat();
    }
    return places;
  }

  // for each place of the matrices, its lanes and elements: several where there are copies
  inverse() {
    const lanes = Layout.walk(this.lane), elements = Layout.walk(this.element);
    const found = Array.from({ length: this.tiles * this.rows * this.cols }, () => []);
    lanes.forEach((lane, index) => elements.forEach((element, number) => {
      const [row, col, tile] = lane.map((each, axis) => each + element[axis]);
      found[(tile * this.rows + row) * this.cols + col].push([this.lanes[index], number]);
    }));
    return found;
  }

  at(row, col, tile) {
    return this.places[(tile * this.rows + row) * this.cols + col].map(([lane, element]) => {
      const bit = this.first + (element % this.perRegister) * this.bits;
      return { lane, element, register: Math.floor(element / this.perRegister), bit };
    });
  }

  // %a1.h0: the register, and its part where an element does not fill it
  name(sigil, place) {
    const whole = this.bits === this.registerBits || !(this.bits in PARTS);
    return `${sigil}${place.register}${whole ? "" : `.${PARTS[this.bits]}${place.bit / this.bits}`}`;
  }
}
