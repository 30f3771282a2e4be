// The second half of the page: an explained product, its steps as bars of bits.

const MOST_STEPS = 64;

// JSON whose integers may have more digits than a double holds: those become text, which BigInt reads
const parseExplained = (json) => JSON.parse(json.replace(/([[:,\s])(-?\d{16,})(?=\s*[,\]}])/g, '$1"$2"'));

class Sums {
  constructor(examples, address) {
    Object.assign(this, { examples, address, name: examples[0].name });
    $("#example").replaceChildren(...examples.map((each) => new Option(each.title, each.name)));
    $("#example").addEventListener("change", (event) => this.go(event.target.value));
    $("#show-json").addEventListener("click", () => this.paste($("#json").value));
  }

  restore(given) {
    this.name = this.examples.some((each) => each.name === given.get("sum")) ? given.get("sum") : this.examples[0].name;
    $("#example").value = this.name;
    const example = this.examples.find((each) => each.name === this.name);
    this.show(example.explained, example.told);
  }

  go(name) {
    this.address([["sum", name]]);
    this.restore(new URLSearchParams({ sum: name }));
  }

  paste(json) {
    $("#refused").textContent = "";
    let explained;
    try {
      explained = parseExplained(json);
      this.show(explained, "");
    } catch (error) {
      const what = explained && !Array.isArray(explained.steps) ? "it has no steps" : error.message;
      $("#refused").textContent = `This is not an explanation of fastmma: ${what}`;
    }
  }

  show(explained, told) {
    const { difference, against } = explained, parted = difference ? difference.terms : [];
    const parts = [[explained, difference ? difference.steps : explained.steps]];
    if (against && difference) parts.push([against, difference.other_steps]);
    const drawn = parts.flatMap(([side, steps]) => this.side(side, steps, parted));
    $("#told").replaceChildren(make("p", {}, told));
    $("#steps").replaceChildren(...drawn);
  }

  side(side, steps, parted) {
    const code = `0x${big(side.code).toString(16)}`, { a, b, d } = side.formats || {};
    const title = `d[${side.row}][${side.col}] = ${side.value} = ${code} (${side.format})`;
    const said = [`${a} × ${b} on ${side.target}`, side.instruction, side.arithmetic].join(", ");
    const first = side.steps ? side.steps.findIndex((step) => JSON.stringify(step) === JSON.stringify(steps[0])) : 0;
    const more = steps.length > MOST_STEPS ? [make("p", { class: "note" }, `and ${steps.length - MOST_STEPS} more steps`)] : [];
    const bars = steps.slice(0, MOST_STEPS).map((step, index) => new Bars(step, Math.max(first, 0) + index, parted).svg());
    return [make("h2", {}, title), make("p", { class: "note" }, said), ...bars, ...more];
  }
}
