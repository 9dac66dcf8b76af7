// Tasks: those that match, of a state, with their ages; and the one that has exactly this id.

import { get } from "../api.js";
import { badge, empty, h, link, replace, short, table } from "../dom.js";
import { ago, ahead, count, duration, moment, now, seconds } from "../format.js";

const STATES = { queued: "Queued", running: "Running", delayed: "Delayed", done: "Done", superseded: "Superseded", cancelled: "Cancelled", expired: "Expired", dropped: "Dropped" };
const NONE = { queued: "No task waits", running: "No task runs", delayed: "No task is delayed", done: "No done task in the history", superseded: "No superseded task in the history", cancelled: "No cancelled task in the history", expired: "No expired task in the history", dropped: "No dropped task in the history" };
const WHEN = { running: "Runs for", delayed: "Due", done: "Ended", superseded: "Ended", cancelled: "Ended", expired: "Ended", dropped: "Ended" };
const OVER = new Set(["done", "superseded", "cancelled", "expired", "dropped"]);
const FILTERS = { id: "Id contains", type: "Type, or import.*", tenant: "Tenant", group: "Group contains", older: "Older than" };

export function tasks(params, context) {
  const state = Object.hasOwn(STATES, params.state) ? params.state : "queued";
  const at = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, params[name] ?? ""]));
  const cursor = params.cursor ?? "0";
  const isFiltered = Object.values(at).some(Boolean);
  const exact = h("input", { name: "exact", autocomplete: "off", required: true, "data-key": "exact", "data-search": true });
  const inputs = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, h("input", { name, value: at[name], autocomplete: "off", placeholder: name === "older" ? "10 min" : undefined, "data-key": `filter ${name}` })]));
  const list = h("div", {});
  const foot = h("footer", {});
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Tasks")),
    h("section", { class: "card" },
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("task", { id: exact.value }); } },
        h("label", { class: "grow" }, "Open a task by its id", exact), h("button", { class: "primary" }, "Open"))),
    h("section", { class: "card" },
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("tasks", { state, ...Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()])) }); } },
        Object.entries(FILTERS).map(([name, label]) => h("label", { class: "grow" }, label, inputs[name])),
        h("button", {}, "Search"),
        isFiltered && link("tasks", { state }, "Clear", { class: "button" })),
      h("nav", { class: "segments", "aria-label": "State" },
        Object.entries(STATES).map(([name, label]) => link("tasks", { ...at, state: name }, label, { "aria-current": name === state ? "true" : undefined })),
        link("dead", { type: at.type, tenant: at.tenant }, "Dead")),
      list, foot),
  ];

  async function refresh() {
    const older = at.older ? seconds(at.older) : "";
    if (older === null) {
      replace(list, empty("This is not an age", "Write 90 s, 10 min, 3 h or 2 days."));
      return;
    }
    const found = await get("tasks", { ...at, older, state, cursor, limit: 100 });
    replace(list, found.tasks.length ? table(`${STATES[state]} tasks`, [
      { label: "Task", kind: "name", cell: (row) => link("task", { id: row.id, tenant: row.tenant }, short(row.id), { "data-key": row.id, title: row.id }) },
      { label: "State", kind: "tight", cell: (row) => [badge(state), row.pool && h("span", { class: "small muted" }, ` pool ${row.pool}`)] },
      { label: "Type", kind: "name", cell: (row) => row.type },
      { label: "Group", kind: "name", cell: (row) => (row.group ? link("group", { key: row.group }, row.group) : h("span", { class: "muted" }, "plain")) },
      { label: "Tenant", kind: "name", cell: (row) => row.tenant && link("tenant", { name: row.tenant }, row.tenant) },
      { label: "Attempt", kind: "number", cell: (row) => count(row.attempt) },
      !OVER.has(state) && { label: "Age", kind: "number", cell: (row) => (row.enqueued_at ? h("span", { title: moment(row.enqueued_at) }, duration(now() - row.enqueued_at)) : "–") },
      WHEN[state] && { label: WHEN[state], kind: "number", cell: (row) => when(state, row) },
    ].filter(Boolean), found.tasks) : isFiltered ? empty("No task found", found.next ? "There are more to search." : "") : empty(NONE[state], ""));
    replace(foot,
      h("span", {}, `${count(found.tasks.length)} shown, searched ${count(found.looked_at)}${OVER.has(state) ? "" : ", the next to run first"}`),
      h("span", { class: "push" }),
      cursor !== "0" && link("tasks", { ...at, state }, "First page", { class: "button", "data-key": "first" }),
      found.next && link("tasks", { ...at, state, cursor: found.next }, isFiltered ? "Search further" : "Next page", { class: "button", "data-key": "next" }));
  }
  return { element, every: 2000, refresh };
}

function when(state, row) {
  const at = state === "delayed" ? row.until : row.since;
  if (!at) return "–";
  const told = { running: duration(now() - at), delayed: ahead(at) }[state] ?? ago(at);
  return h("span", { title: moment(at) }, told);
}
