// Tasks by id, and some of each state.

import { get } from "../api.js";
import { badge, empty, h, link, replace, table } from "../dom.js";
import { ago, ahead, count, duration, moment, now } from "../format.js";

const STATES = { queued: "Queued", running: "Running", delayed: "Delayed", done: "Done" };
const NONE = { queued: "Nothing waits", running: "Nothing runs", delayed: "No task waits for its time", done: "The history is empty" };

const WHEN = { queued: "Came", running: "Runs for", delayed: "Due", done: "Ended" };

function when(state, row) {
  const at = { queued: row.enqueued_at, delayed: row.until }[state] ?? row.since;
  if (!at) return "–";
  const told = { running: duration(now() - at), delayed: ahead(at) }[state] ?? ago(at);
  return h("span", { title: moment(at) }, told);
}

export function tasks(params, context) {
  const state = Object.hasOwn(STATES, params.state) ? params.state : "queued";
  const limit = Math.min(500, Number(params.limit) || 100);
  const id = h("input", { name: "id", autocomplete: "off", required: true });
  const list = h("div", {});
  const foot = h("footer", {});
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Tasks")),
    h("section", { class: "card" }, h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("task", { id: id.value }); } },
      h("label", { class: "grow" }, "Open a task by its id", id), h("button", { class: "primary" }, "Open"))),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "Some tasks"), h("span", { class: "muted" }, "the next to run first, where there is an order")),
      h("nav", { class: "segments", "aria-label": "State" },
        Object.entries(STATES).map(([name, label]) => link("tasks", { state: name }, label, { "aria-current": name === state ? "true" : undefined })),
        link("dead", {}, "Dead")),
      list, foot),
  ];
  async function refresh() {
    const found = await get("tasks", { state, limit });
    replace(list, found.tasks.length ? table(`${STATES[state]} tasks`, [
      { label: "Task", kind: "name", cell: (row) => link("task", { id: row.id }, row.id, { "data-key": row.id }) },
      { label: "State", kind: "tight", cell: () => badge(state) },
      { label: "Type", kind: "name", cell: (row) => row.type },
      { label: "Group", kind: "name", cell: (row) => (row.group ? link("group", { key: row.group }, row.group) : h("span", { class: "muted" }, "plain")) },
      { label: "Tenant", kind: "name", cell: (row) => row.tenant },
      { label: "Attempt", kind: "number", cell: (row) => count(row.attempt) },
      { label: WHEN[state], kind: "number", cell: (row) => when(state, row) },
    ], found.tasks) : empty(NONE[state], ""));
    replace(foot,
      h("span", {}, `${count(found.tasks.length)} tasks${found.tasks.length === limit ? ": a look, not a census" : ""}`),
      h("span", { class: "push" }),
      found.tasks.length === limit && limit < 500 && link("tasks", { state, limit: 500 }, "Show up to 500", { class: "button" }));
  }
  return { element, every: 2000, refresh };
}
