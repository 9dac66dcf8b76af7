// Tasks: those that match, of a state, with their ages, to be cancelled, dropped or run; and the one that has exactly this id.

import { get } from "../api.js";
import { badge, choosing, empty, h, keyOfTask, link, replace, short, table } from "../dom.js";
import { attempt } from "../dialogs.js";
import { ago, ahead, count, duration, moment, now, seconds } from "../format.js";
import { cancelTasks, dropTasks, runNow } from "./actions.js";

const STATES = { queued: "Queued", running: "Running", delayed: "Delayed", done: "Done", superseded: "Superseded", cancelled: "Cancelled", expired: "Expired", dropped: "Dropped" };
const NONE = { queued: "No task waits", running: "No task runs", delayed: "No task is delayed", done: "No done task in the history", superseded: "No superseded task in the history", cancelled: "No cancelled task in the history", expired: "No expired task in the history", dropped: "No dropped task in the history" };
const WHEN = { running: "Runs for", delayed: "Due", done: "Ended", superseded: "Ended", cancelled: "Ended", expired: "Ended", dropped: "Ended" };
const ORDER = { queued: ", the next to run first", running: ", the longest first", delayed: ", the next due first" };
const OVER = new Set(["done", "superseded", "cancelled", "expired", "dropped"]);
const VERBS = {
  queued: [["Cancel tasks", cancelTasks], ["Drop", dropTasks]],
  running: [["Cancel tasks", cancelTasks]],
  delayed: [["Run now", runNow], ["Cancel tasks", cancelTasks], ["Drop", dropTasks]],
};
const MOST = 5000; // tasks that are chosen at once
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
  const told = h("span", { class: "muted", role: "status" });
  const verbs = (VERBS[state] ?? []).map(([label, verb]) => h("button", { type: "button", class: verb === runNow ? undefined : "danger", "data-key": label, onclick: () => run(verb) }, label));
  const every = h("button", { type: "button", "data-key": "choose all", onclick: chooseAll }, "Choose all that match");
  const choice = choosing(keyOfTask, showChosen);
  let isMore = false;
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
      verbs.length > 0 && h("div", { class: "form row" }, verbs, told, h("span", { class: "push" }), every),
      list, foot),
  ];
  const older = at.older ? seconds(at.older) : "";

  function showChosen(number) {
    for (const each of verbs) each.disabled = !number;
    every.hidden = !isMore;
    told.textContent = number ? `${count(number)} chosen; the list is frozen meanwhile` : "Choose some";
  }

  async function run(verb) {
    if (!(await verb(context, [...choice.chosen.values()]))) return;
    choice.choose([]);
    await refresh();
  }

  // From the first on, page by page, however many that match.
  async function chooseAll() {
    if (older === null) return;
    const rows = new Map(); // pages of several partitions have the first one's tasks again
    let next = "0";
    await attempt(async () => {
      while (next && rows.size < MOST) {
        const found = await get("tasks", { ...at, older, state, cursor: next, limit: 500 });
        for (const row of found.tasks) rows.set(keyOfTask(row), row);
        ({ next } = found);
        told.textContent = `${count(rows.size)} found so far`;
      }
    });
    choice.choose([...rows.values()].slice(0, MOST));
    if (next) told.textContent += `: the first ${count(MOST)}, there are more`;
  }

  async function refresh() {
    if (choice.chosen.size) return; // or what is about to be chosen would move away
    if (older === null) {
      replace(list, empty("This is not an age", "Write 90 s, 10 min, 3 h or 2 days."));
      return;
    }
    const found = await get("tasks", { ...at, older, state, cursor, limit: 100 });
    if (choice.chosen.size) return;
    isMore = Boolean(found.next) || cursor !== "0";
    showChosen(0);
    const shown = columns(state);
    const name = `${STATES[state]} tasks`;
    replace(list, found.tasks.length ? (verbs.length ? choice.table(name, shown, found.tasks) : table(name, shown, found.tasks)) : at.tenant && OVER.has(state) ? empty("Tenants of tasks that are over are not known", "Clear that filter.") : isFiltered ? empty("No task found", found.next ? "There are more to search." : "") : empty(NONE[state], ""));
    replace(foot,
      h("span", {}, `${count(found.tasks.length)} shown, ${OVER.has(state) ? `the latest to end first, of ${count(found.looked_at)} looked at${found.is_whole ? "" : " in no order, and of groups' last ones: some may be missing"}` : `searched ${count(found.looked_at)}${ORDER[state] ?? ""}`}`),
      h("span", { class: "push" }),
      cursor !== "0" && link("tasks", { ...at, state }, "First page", { class: "button", "data-key": "first" }),
      found.next && link("tasks", { ...at, state, cursor: found.next }, isFiltered ? "Search further" : "Next page", { class: "button", "data-key": "next" }));
  }
  showChosen(0);
  return { element, every: OVER.has(state) ? 10000 : 2000, refresh };
}

// Those of a state; without one, each row has its own.
export function columns(state) {
  return [
    { label: "Task", kind: "name", cell: (row) => link("task", { id: row.id, tenant: row.tenant }, short(row.id), { "data-key": `open ${keyOfTask(row)}`, title: row.id }) },
    { label: "State", kind: "tight", cell: (row) => [badge(state ?? row.state), row.pool && h("span", { class: "small muted" }, ` pool ${row.pool}`), state === "queued" && row.until && h("span", { class: "small muted", title: moment(row.until) }, ` due ${ahead(row.until)}`)] },
    { label: "Type", kind: "name", cell: (row) => link("type", { name: row.type }, row.type) },
    { label: "Group", kind: "name", cell: (row) => (row.group ? link("group", { key: row.group }, row.group) : h("span", { class: "muted" }, "plain")) },
    { label: "Tenant", kind: "name", cell: (row) => row.tenant && link("tenant", { name: row.tenant }, row.tenant) },
    { label: "Attempt", kind: "number", cell: (row) => count(row.attempt) },
    !OVER.has(state) && { label: "Age", kind: "number", cell: (row) => (row.enqueued_at ? h("span", { title: moment(row.enqueued_at) }, duration(now() - row.enqueued_at)) : "–") },
    WHEN[state] && { label: WHEN[state], kind: "number", cell: (row) => when(state, row) },
  ].filter(Boolean);
}

function when(state, row) {
  const at = state === "delayed" ? row.until : row.since;
  if (!at) return "–";
  const told = { running: duration(now() - at), delayed: ahead(at) }[state] ?? ago(at);
  return h("span", { title: moment(at) }, told);
}
