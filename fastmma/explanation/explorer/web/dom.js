// What both pages need of a document.

function $(where) { return document.querySelector(where); }

function make(name, attributes, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...content);
  return element;
}

// an opcode that goes on on the next line after a dot
const breakable = (opcode) => opcode.replaceAll(".", ".\u200b");

const data = (name) => JSON.parse($(`#${name}-data`).textContent);

function setAddress(pairs) {
  const hash = new URLSearchParams(pairs).toString();
  if (hash !== location.hash.slice(1)) history.pushState(null, "", `#${hash}`);
}
