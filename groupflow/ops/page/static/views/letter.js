// One dead letter: why it died, what its attempts said, its headers and its body.

import { get } from "../api.js";
import { badge, card, empty, facts, h, link, replace } from "../dom.js";
import { ago, count, moment } from "../format.js";
import { drop, redrive } from "./actions.js";
import { attemptsOf } from "./attempts.js";
import { bodyOf, headersOf } from "./body.js";

export function letter(params, context) {
  const id = params.id ?? "";
  const tenant = params.tenant; // where several have the id
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

  async function run(verb, found) {
    if (await verb(context, [found])) context.go("dead");
  }

  async function refresh() {
    const found = await get("letter", { id, tenant }).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    if (!found) {
      replace(about, empty("It is no dead letter, or not any more", link("task", { id, tenant }, "Look for the task")));
      replace(attempts, empty("–", ""));
      replace(body, empty("–", ""));
      replace(actions);
      return;
    }
    replace(actions,
      h("button", { type: "button", class: "primary", onclick: () => run(redrive, found) }, "Redrive"),
      h("button", { type: "button", class: "danger", onclick: () => run(drop, found) }, "Drop"));
    replace(about,
      h("p", { class: "lead" }, found.reason),
      facts([
        ["Type", found.type || "none"],
        ["Group", found.group ? link("group", { key: found.group }, found.group, { "data-key": "group" }) : "plain"],
        ["Tenant", found.tenant && link("tenant", { name: found.tenant }, found.tenant, { "data-key": "tenant" })],
        ["Attempts", count(found.attempts)],
        ["Died", h("span", { title: moment(found.died_at) }, ago(found.died_at))],
        ["A redrive", found.routed_first ? "routes it first: it never had a route" : "puts it back at its original place"],
      ]),
      headersOf(found.headers));
    replace(attempts, attemptsOf(found.errors));
    const [told, shown] = bodyOf(found, context, refresh);
    size.textContent = told;
    replace(body, shown);
  }

  return { element, refresh };
}
