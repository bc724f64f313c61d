// Elements are made here and nowhere else. Text always becomes a text node: nothing is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

const set = (node, name, value) => {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "data") Object.assign(node.dataset, value);
  else if (name === "value" || name === "checked" || name === "indeterminate") node[name] = value;
  else node.setAttribute(name, value === true ? "" : String(value));
};

const fill = (node, options, children) => {
  for (const [name, value] of Object.entries(options)) set(node, name, value);
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};

/** An element with attributes, listeners (`onclick`) and children (nodes or text; null and false are left out). */
export const el = (name, options = {}, ...children) => fill(document.createElement(name), options, children);

/** The same for drawings. */
export const svg = (name, options = {}, ...children) => fill(document.createElementNS(SVG, name), options, children);

/** Text that came from people or the service: never translated. */
export const data = (text, name = "span", options = {}) => el(name, { translate: "no", ...options }, String(text));

/** A picture of those in index.html; it only decorates, so a reader skips it. */
export const icon = (name) =>
  svg("svg", { class: "icon", "aria-hidden": "true", focusable: "false" }, svg("use", { href: `#icon-${name}` }));

let numbers = 0;

/** An id that no other element has. */
export const newId = (stem) => `${stem}-${(numbers += 1)}`;

/** Puts a cursor for the keyboard and the reader onto something that is not a control. */
export const focusOn = (node) => {
  if (!node) return;
  if (!node.hasAttribute("tabindex")) node.tabIndex = -1;
  node.focus({ preventScroll: true });
};
