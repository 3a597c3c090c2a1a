// Elements from data. Text becomes text nodes and never markup, so nothing that a user types is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function show(node, ...children) {
  node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

export const options = (pairs, chosen) =>
  pairs.map(([value, name]) => el("option", { value, selected: value === chosen }, name));

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

export const UNKNOWN = "one pass cannot know this";

// A measure that a method may not know: a dash that says so, and never 0.
export const measured = (value) => (value === null || value === undefined ? el("span", { class: "unknown", title: UNKNOWN, "aria-label": UNKNOWN }, "–") : number(value));

export function number(value) {
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(3);
}

// Runs `action` once the calls have stopped for so many milliseconds.
export function settled(action, milliseconds) {
  let waiting = 0;
  return () => {
    clearTimeout(waiting);
    waiting = setTimeout(action, milliseconds);
  };
}
