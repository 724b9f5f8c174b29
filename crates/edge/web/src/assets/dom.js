// Creates and updates elements. Text is never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** An element with attributes (`onclick` and the like are listeners) and children. */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** The same for SVG. */
export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

/** Sets the text if it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets the attribute if it differs. */
export function setAttr(element, name, value) {
  if (value == null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Makes an element's children match a list by key. Existing children are updated in place, so that they
 * keep focus and hover.
 */
export function keyed(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    if (child) old.delete(key);
    else {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}

/** Rebuilds the content only if its inputs differ. */
export function remake(parent, made, make) {
  const signature = JSON.stringify(made);
  if (parent.signature === signature) return false;
  parent.signature = signature;
  parent.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
  return true;
}

const RATES = [[1e12, "Tbit/s"], [1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]];

/** Bits per second as people say them. */
export function rate(bps) {
  if (bps == null) return "–";
  const [unit, word] = RATES.find(([unit]) => bps >= unit) ?? [1, "bit/s"];
  const value = bps / unit;
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${word}`;
}

/** Millionths as a percentage. */
export const percent = (ppm) => `${(ppm / 1e4).toFixed(ppm < 1e5 && ppm % 1e4 ? 1 : 0)} %`;

/** A large number in groups of three. */
export const count = (value) => value.toLocaleString("en-GB");

/** The last part of a resource's name. */
export const id = (name) => name.slice(name.lastIndexOf("/") + 1);

/** `acme/web` of `tenants/acme/dags/web`. */
export const short = (dag) => dag.replace(/^tenants\//, "").replace("/dags/", "/");

/** The tenant of a DAG's name. */
export const tenantOf = (dag) => dag.split("/")[1] ?? "";

/** `card0/3` of `cards/card0/regions/3`. */
export const spot = (region) => region.replace(/^cards\//, "").replace("/regions/", "/");

/** The card of a region's name. */
export const cardOf = (region) => region.replace(/\/regions\/.*$/, "");

/** The addresses of this page that show a DAG, a region and a card. */
export const dagUrl = (dag) => `#dag=${short(dag)}`;
export const regionUrl = (region) => `#region=${spot(region)}`;
export const cardUrl = (card) => `#card=${id(card)}`;

/** `FREE_REGION` as `free region`. */
export const words = (word) => word.toLowerCase().replaceAll("_", " ");
