// One dead letter: why it died, what its attempts said, its headers and its body.

import { get } from "../api.js";
import { badge, card, empty, facts, h, link, replace } from "../dom.js";
import { ago, bytes, count, moment } from "../format.js";
import { drop, redrive } from "./actions.js";
import { failuresOf } from "./task.js";

export function letter(params, context) {
  const id = params.id ?? "";
  const actions = h("div", { class: "push" });
  const about = h("section", { class: "card", "data-state": "dead" });
  const attempts = h("div", {});
  const body = h("div", {});
  const size = h("span", { class: "muted" });
  const element = [
    h("p", { class: "small" }, link("dead", {}, "← Dead letters")),
    h("div", { class: "title" }, h("h1", {}, id), badge("dead"), actions),
    about,
    h("div", { class: "columns top" },
      card("Attempts", "", attempts),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Body"), size), body)),
  ];

  async function run(verb) {
    if (await verb(context, [id])) context.go("dead");
  }

  async function refresh() {
    const found = await get("letter", { id }).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    if (!found) {
      replace(about, empty("It is no dead letter, or not any more", link("task", { id }, "Look for the task")));
      replace(attempts, empty("–", ""));
      replace(body, empty("–", ""));
      replace(actions);
      return;
    }
    replace(actions,
      h("button", { type: "button", class: "primary", onclick: () => run(redrive) }, "Redrive"),
      h("button", { type: "button", class: "danger", onclick: () => run(drop) }, "Drop"));
    const headers = Object.entries(found.headers);
    replace(about,
      h("p", { class: "lead" }, found.reason),
      facts([
        ["Type", found.type || "none"],
        ["Group", found.group ? link("group", { key: found.group }, found.group, { "data-key": "group" }) : "plain"],
        ["Tenant", found.tenant],
        ["Attempts", count(found.attempts)],
        ["Died", h("span", { title: moment(found.died_at) }, ago(found.died_at))],
        ["A redrive", found.routed_first ? "routes it first: it never had a route" : "puts it back at its original place"],
      ]),
      headers.length > 0 && h("dl", { class: "settings" }, headers.map(([name, value]) => [h("dt", {}, name), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value))])));
    replace(attempts, failuresOf(found.errors));
    if (found.is_withheld) {
      size.textContent = bytes(found.body_bytes);
      replace(body, empty("Body and headers want the token",
        h("button", { type: "button", onclick: async () => { if (await context.act()) await refresh(); } }, "Enter the token")));
      return;
    }
    size.textContent = `${bytes(found.body_bytes)}${found.is_cut ? ", its beginning" : ""}${found.body === null ? ", not UTF-8: as base64" : ""}`;
    replace(body, h("pre", { class: "document", tabindex: "0" }, pretty(found)));
  }

  return { element, refresh };
}

function pretty(found) {
  if (found.body === null) return found.body_base64;
  return found.body || "(empty)"; // as it came: never parsed and written anew
}
