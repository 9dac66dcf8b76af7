// Building the page out of nodes and text. Nothing here ever reads a string as HTML: ids, group keys
// and bodies come from strangers, and the policy forbids it anyway.

import { ago, figure } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children) {
    if (child === undefined || child === null || child === false) continue;
    if (Array.isArray(child)) add(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

// Puts new content in place; what has the focus keeps it, where it is there again under its key.
export function replace(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  node.replaceChildren();
  add(node, children);
  if (focused === undefined) return;
  for (const each of node.querySelectorAll("[data-key]")) {
    if (each.dataset.key === focused) {
      each.focus({ preventScroll: true });
      return;
    }
  }
}

// Runs `render` only when what it shows has changed, so that a selection survives the next second.
export function whenChanged(render) {
  let shown;
  return (...facts) => {
    const text = JSON.stringify(facts);
    if (text === shown) return;
    shown = text;
    render(...facts);
  };
}

export const badge = (state) => h("span", { class: "badge", "data-state": state }, state);

// How far an attempt has got, as its handler says: words, and a bar where the whole is known; null where it says nothing.
export function progressOf(told) {
  if (!told) return null;
  const { done, total, unit, at } = told;
  const share = total === null ? "" : `, ${Math.floor((100 * done) / total)} %`;
  const words = `${total === null ? figure(done) : `${figure(done)} of ${figure(total)}`}${unit && ` ${unit}`}${share}`;
  return h("div", { title: `said ${ago(at)}` }, words, total !== null && h("progress", { max: total, value: Math.min(done, total), "aria-label": words }));
}

// A bar of which a share, from 0 to 1, is full; the same has to stand beside it in words.
export function meter(share) {
  const bar = h("span", {});
  bar.style.width = `${Math.min(100, Math.max(0, 100 * share))}%`;
  return h("div", { class: "meter", "aria-hidden": "true" }, bar);
}

const LONG = 24; // characters of an id that a list shows whole

// An id, shortened in the middle: of many, the end tells them apart, and of strangers' the beginning too.
export function short(id) {
  const letters = [...id];
  return letters.length <= LONG ? id : `${letters.slice(0, 11).join("")}…${letters.slice(-10).join("")}`;
}

export const empty = (title, more) => h("div", { class: "empty" }, h("strong", {}, title), more);

export const link = (view, params, text, props) =>
  h("a", { href: address(view, params), ...props }, text);

export function address(view, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value !== "" && value !== undefined && value !== null) query.set(name, value);
  }
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

// On a narrow screen a cell is a label and one thing beside it.
const together = (content) => (Array.isArray(content) && content.filter(Boolean).length > 1 ? h("span", {}, content) : content);

// A table whose rows become cards on a narrow screen. Columns: { name, label, cell(row), kind, sort }.
export function table(caption, columns, rows, options = {}) {
  const head = columns.map((column) => {
    const { sorting } = options;
    const props = { role: "columnheader", scope: "col", class: column.kind === "number" ? "number" : undefined };
    if (!column.sort || !sorting) return h("th", props, column.label || h("span", { class: "visually-hidden" }, column.kind === "actions" ? "Actions" : "Choose"));
    if (sorting.by === column.name) props["aria-sort"] = sorting.down ? "descending" : "ascending";
    const onclick = () => options.onsort(column.name);
    return h("th", props, h("button", { type: "button", onclick, "data-key": `sort ${column.name}` }, column.label));
  });
  const body = rows.map((row) =>
    h("tr", { role: "row" }, columns.map((column) => h(
      "td",
      { role: "cell", class: column.kind, "data-label": column.kind === "actions" ? undefined : column.label || undefined },
      column.kind === "actions" ? column.cell(row) : together(column.cell(row)),
    ))),
  );
  const scrolls = options.scrolls && { tabindex: "0", role: "region", "aria-label": caption }; // by keys too
  return h("div", { class: "scroll", ...scrolls }, h(
    "table", { class: "rows", role: "table" },
    h("caption", { class: "visually-hidden" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    h("tbody", { role: "rowgroup" }, body),
  ));
}

// Rows in the order of their keys; as they are without one.
export function sorted(rows, key, down) {
  if (!key) return rows;
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : 0));
}

// Rows that a person chooses in a table, by their keys; `changed` hears of it. While some are chosen, a list stands still.
export function choosing(keyOf, changed) {
  const chosen = new Map();
  let rows = [];
  let shown = null;
  const box = (label, props) => h("input", { type: "checkbox", "aria-label": label, ...props });
  const all = box("Choose all shown", { "data-key": "all", onchange: (event) => choose(rows, event.target.checked) });
  function tell() {
    all.checked = rows.length > 0 && chosen.size >= rows.length;
    all.indeterminate = chosen.size > 0 && !all.checked;
    changed(chosen.size);
  }
  function choose(some, are = true) {
    chosen.clear();
    if (are) for (const row of some) chosen.set(keyOf(row), row);
    for (const each of shown?.querySelectorAll("tbody input") ?? []) each.checked = chosen.has(each.dataset.key);
    tell();
  }
  const column = { label: "", kind: "tight", cell: (row) => box(`Choose ${row.id}`, { "data-key": keyOf(row), checked: chosen.has(keyOf(row)), onchange: (event) => {
    if (event.target.checked) chosen.set(keyOf(row), row);
    else chosen.delete(keyOf(row));
    tell();
  } }) };
  return {
    chosen,
    choose,
    // A table of these rows, with a box for each of them in front, and one for all.
    table(caption, columns, some) {
      rows = some;
      for (const key of chosen.keys()) if (!rows.some((row) => keyOf(row) === key)) chosen.delete(key);
      shown = table(caption, [column, ...columns], rows);
      shown.querySelector("th").append(all);
      tell();
      return shown;
    },
  };
}

// Two tenants may have a task of one id.
export const keyOfTask = ({ id, tenant }) => JSON.stringify([id, tenant]);

export function card(title, more, ...children) {
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, title), more && h("span", { class: "muted" }, more)), children);
}

export const facts = (pairs) => h("dl", { class: "facts" }, pairs
  .filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "")
  .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
