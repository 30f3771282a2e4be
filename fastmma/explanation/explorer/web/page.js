// The page: its two halves, and the address that tells what is shown.

const FIRST_OPCODE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";

const halves = { layouts: new Layouts(data("layouts"), setAddress), sums: new Sums(parseExplained($("#sums-data").textContent), setAddress) };

function show(half, given) {
  for (const name of Object.keys(halves)) {
    $(`#${name}`).hidden = name !== half;
    $(`#show-${name}`).setAttribute("aria-pressed", name === half);
  }
  halves[half].restore(given);
}

function fromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  show(given.has("sum") ? "sums" : "layouts", given);
}

$("#show-layouts").addEventListener("click", () => { setAddress([]); fromAddress(); });
$("#show-sums").addEventListener("click", () => halves.sums.go(halves.sums.name) ?? fromAddress());
window.addEventListener("popstate", fromAddress);
window.addEventListener("hashchange", fromAddress);
fromAddress();
