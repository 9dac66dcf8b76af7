// The page by keys: `/` to search, `g` and a letter to go somewhere, `?` to see them all.

import { h } from "./dom.js";

const PLACES = { o: "overview", g: "groups", t: "tasks", d: "dead", y: "types", n: "tenant", s: "schedules", a: "scans", w: "pools", l: "limits", p: "partitions", h: "actions", c: "configuration" };
const NAMES = { dead: "dead letters", tenant: "tenants" };
const LETTER_WITHIN = 1500; // ms between `g` and its letter

export function follow(go) {
  let since = -Infinity;
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const place = performance.now() - since < LETTER_WITHIN ? PLACES[event.key] : undefined;
    since = event.key === "g" && !place ? performance.now() : -Infinity;
    if (place) go(place, {});
    else if (event.key === "/") search(go);
    else if (event.key === "?") tell();
    else return;
    event.preventDefault();
  });
}

// The view's own field, or that of the tasks.
function search(go) {
  const field = document.querySelector("main [data-search]") ?? document.querySelector("main form input");
  if (field) {
    field.focus();
    field.select();
    return;
  }
  go("tasks", {});
  addEventListener("hashchange", () => document.querySelector("main [data-search]")?.focus(), { once: true });
}

function tell() {
  const keys = [["/", "search"], ...Object.entries(PLACES).map(([key, place]) => [`g ${key}`, NAMES[place] ?? place]), ["?", "this"]];
  const dialog = h("dialog", { "aria-labelledby": "keys" },
    h("form", { method: "dialog" }, h("h2", { id: "keys" }, "Keys"),
      h("dl", { class: "settings" }, keys.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])),
      h("div", { class: "ends" }, h("button", { autofocus: true }, "Close"))));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}
