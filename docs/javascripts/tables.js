// Filters the instruction tables by GPU and type; labels cells for narrow screens, where a row becomes a card.
document$.subscribe(() => {
  const panel = document.querySelector(".table-filter");
  const tables = [...document.querySelectorAll(".wide table")];
  for (const table of document.querySelectorAll(".md-typeset table")) {
    const headings = [...table.querySelectorAll("th")].map((cell) => cell.textContent);
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, column) => { cell.dataset.label = headings[column]; });
  }
  if (!panel) return;
  const order = panel.dataset.targets.split(" ");
  const [target, type, found] = [panel.querySelector("select"), panel.querySelector("input"), panel.querySelector("output")];
  const takes = (text, name) => text.split(", ").some((part) => {
    const first = part.replace(" and later", "");
    return first === name || name.startsWith(part.replace(/[af]$/, "")) && !/[af]$/.test(part) && part === name.replace(/[af]$/, "")
      || part.endsWith(" and later") && name.startsWith("sm_") && order.indexOf(name) >= order.indexOf(first);
  });
  const rows = tables.flatMap((table) => [...table.querySelectorAll("tbody tr")]);
  const targetsOf = (row) => [...row.cells].filter((cell) => /sm_|gfx/.test(cell.textContent)).map((cell) => cell.textContent);
  for (const name of order) if (rows.some((row) => targetsOf(row).some((text) => takes(text, name)))) target.add(new Option(name));
  const filter = () => {
    let shown = 0;
    for (const row of rows) {
      const words = [...row.cells].flatMap((cell) => cell.textContent.split(/[^\w]+/));
      const hidden = (target.value && !targetsOf(row).some((text) => takes(text, target.value))) || (type.value && !words.includes(type.value));
      row.hidden = Boolean(hidden);
      shown += !hidden;
    }
    found.textContent = `${shown} rows`;
  };
  target.addEventListener("change", filter);
  type.addEventListener("input", filter);
  filter();
});
