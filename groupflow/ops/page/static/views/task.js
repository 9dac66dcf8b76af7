// One task: where it is and what has happened to it.

import { get } from "../api.js";
import { badge, card, empty, facts, h, link, replace, whenChanged } from "../dom.js";
import { ago, ahead, duration, moment } from "../format.js";
import { dropTask, runNow } from "./actions.js";

export function task(params, context) {
  const id = params.id ?? "";
  const state = h("span", {});
  const actions = h("div", { class: "push" });
  const about = h("section", { class: "card" });
  const errors = h("div", {});
  const element = [
    h("p", { class: "small" }, link("tasks", {}, "← Tasks")),
    h("div", { class: "title" }, h("h1", {}, id), state, actions),
    about,
    card("Failed attempts", "", errors),
  ];
  const button = (tone, verb, text) => h("button", { type: "button", class: tone, "data-key": text, onclick: () => verb(context, id).then(refresh) }, text);
  const showActions = whenChanged((found) => replace(actions,
    found === "delayed" && button("primary", runNow, "Run now"),
    (found === "delayed" || found === "queued") && button("danger", dropTask, "Drop")));
  const showErrors = whenChanged((found) => replace(errors, failuresOf(found)));
  async function refresh() {
    const found = await get("task", { id }).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    if (!found) {
      replace(state);
      showActions("");
      replace(about, empty("There is no such task", "It never came, or ended longer ago than history.retention keeps."));
      showErrors([]);
      return;
    }
    replace(state, badge(found.state));
    showActions(found.state);
    about.dataset.state = found.state;
    replace(about, found.reason && h("p", { class: "lead" }, found.reason), h("div", { class: "body" }), facts([
      ["Type", found.type],
      ["Group", found.group ? link("group", { key: found.group }, found.group, { "data-key": "group" }) : "none, it is plain"],
      ["Tenant", found.tenant],
      ["Attempt", String(found.attempt)],
      ["Crashes", found.crashes ? String(found.crashes) : null],
      ["Stage", found.stage],
      ["On", found.daemon && `${found.daemon}, ${found.worker}`],
      ["Fence", found.fence && String(found.fence)],
      ["Since", found.since && h("span", { title: moment(found.since) }, ago(found.since))],
      ["Until", found.until && h("span", { title: moment(found.until) }, ahead(found.until))],
      ["Body", found.state === "dead" && link("letter", { id }, "see the dead letter", { "data-key": "letter" })],
    ]));
    showErrors(found.errors);
  }
  return { element, every: 1000, refresh };
}

export function failuresOf(errors) {
  if (!errors.length) return empty("None", "");
  return h("ul", { class: "failures" }, errors.map((error) => h("li", {},
    h("div", {}, `attempt ${error.attempt ?? "–"}: ${error.error}`, error.at && h("span", { class: "muted" }, ` · ${moment(error.at)}, ${duration(error.seconds)} on ${error.daemon}`)),
    h("div", { class: "muted" }, error.message),
    error.traceback && h("pre", { class: "document", tabindex: "0", "aria-label": `Traceback of attempt ${error.attempt}` }, error.traceback))));
}
