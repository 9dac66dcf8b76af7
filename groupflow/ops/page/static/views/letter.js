// One dead letter: why it died, what its attempts said, its headers and its body, which can be corrected.

import { find } from "../api.js";
import { badge, card, empty, facts, h, link, replace } from "../dom.js";
import { ago, count, moment } from "../format.js";
import { drop, redrive } from "./actions.js";
import { attemptsOf } from "./attempts.js";
import { bodyOf, headersOf } from "./body.js";
import { correctionsOf, editorOf } from "./corrections.js";

export function letter(params, context) {
  const id = params.id ?? "";
  const tenant = params.tenant; // where several have the id
  const actions = h("div", { class: "push" });
  const about = h("section", { class: "card", "data-state": "dead" });
  const attempts = h("div", {});
  const body = h("div", {});
  const size = h("span", { class: "muted" });
  const editor = h("div", {}); // a refresh leaves it alone
  const element = [
    h("p", { class: "small" }, link("dead", {}, "← Dead letters")),
    h("div", { class: "title" }, h("h1", {}, id), badge("dead"), actions),
    about,
    editor,
    h("div", { class: "columns top" },
      card("Attempts", "", attempts),
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Body"), size), body)),
  ];

  async function run(verb, found) {
    if (await verb(context, [found])) context.go("dead");
  }

  function correct(found) {
    replace(editor, editorOf(found, context, () => context.go("dead"), () => replace(editor)));
    editor.querySelector("textarea").focus();
  }

  async function refresh() {
    const found = await find("letter", { id, tenant });
    if (!found) {
      replace(about, empty("There is no such dead letter", link("task", { id, tenant }, "Look for the task")));
      replace(attempts, empty("–", ""));
      replace(body, empty("–", ""));
      replace(actions);
      replace(editor);
      return;
    }
    replace(actions,
      h("button", { type: "button", class: "primary", onclick: () => run(redrive, found) }, "Redrive"),
      !found.is_withheld && !found.is_cut && !found.body_error && h("button", { type: "button", onclick: () => correct(found) }, "Correct the body"),
      h("button", { type: "button", class: "danger", onclick: () => run(drop, found) }, "Drop"));
    replace(about,
      h("p", { class: "lead" }, found.reason),
      facts([
        ["Type", found.type ? link("type", { name: found.type }, found.type, { "data-key": "type" }) : "none"],
        ["Group", found.group ? link("group", { key: found.group }, found.group, { "data-key": "group" }) : "plain"],
        ["Tenant", found.tenant && link("tenant", { name: found.tenant }, found.tenant, { "data-key": "tenant" })],
        ["Attempts", count(found.attempts)],
        ["Died", h("span", { title: moment(found.died_at) }, ago(found.died_at))],
        ["To correct it", found.is_cut ? "groupflow dead redrive ID --body FILE: it is too long for this page" : null],
        ["A redrive", found.routed_first ? "routes it first: it never had a route" : "puts it back at its original place"],
      ]),
      headersOf(found.headers));
    replace(attempts, attemptsOf(found.errors), correctionsOf(found.corrections));
    const [told, shown] = found.body_error ? ["", empty("It can't be read", found.body_error)] : bodyOf(found, context, refresh);
    size.textContent = told;
    replace(body, shown);
  }

  return { element, refresh };
}
