// A list of choices whose texts take as many lines as they need: arrows, Home, End and clicks choose.

const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

class Choices {
  constructor(element, chosen) {
    Object.assign(this, { element, chosen, values: [] });
    element.addEventListener("click", (event) => {
      const item = event.target.closest("[role=option]");
      if (item) this.choose([...element.children].indexOf(item));
    });
    element.addEventListener("keydown", (event) => {
      if (!(event.key in STEPS) || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.choose(this.place() + STEPS[event.key]);
    });
  }

  // entries of a value and a text; the list begins at its top
  fill(entries, value) {
    this.values = entries.map(([each]) => each);
    this.element.replaceChildren(...entries.map(([, text], place) => make("li", { role: "option", id: `${this.element.id}-${place}` }, text)));
    this.mark(value);
    this.element.scrollTop = 0;
  }

  place() { return this.values.indexOf(this.value); }

  mark(value) {
    this.item()?.removeAttribute("aria-selected");
    this.value = value;
    this.item()?.setAttribute("aria-selected", "true");
    this.element.setAttribute("aria-activedescendant", this.item()?.id ?? "");
  }

  item() { return this.element.children[this.place()]; }

  reveal() { this.item()?.scrollIntoView({ block: "nearest" }); }

  // a place beyond the ends is the end
  choose(place) {
    if (!this.values.length) return;
    this.chosen(this.values[Math.min(Math.max(place, 0), this.values.length - 1)]);
    this.reveal();
  }
}
