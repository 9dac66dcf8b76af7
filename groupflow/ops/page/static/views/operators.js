// What operators did, on this page or by the command line, the latest first.

import { get } from "../api.js";
import { empty, h, link, replace, short, table, whenChanged } from "../dom.js";
import { count, duration, moment, time } from "../format.js";

const DID = {
  paused: "paused", resumed: "resumed", limited: "limited", unlimited: "ended the limits", cancelled: "cancelled",
  dropped_waiting: "dropped", ran_now: "made due", redriven: "redrove", dropped: "dropped dead letters",
  ran_schedule: "ran", paused_schedule: "paused", resumed_schedule: "resumed", dropped_schedule: "forgot",
  woke_scan: "woke", paused_scan: "paused", resumed_scan: "resumed", dropped_scan: "forgot", repartitioned: "moved the namespace",
};
// Where what it was done to is shown; all else is told in words.
const SHOWN = {
  group: (name) => (name === "everything" ? "everything" : name.endsWith("…") ? ["group ", name] : ["group ", link("group", { key: name }, name, { "data-key": `group ${name}` })]),
  tenant: (name) => (name ? ["tenant ", link("tenant", { name }, name, { "data-key": `tenant ${name}` })] : "tasks of no tenant"),
  type: (name) => ["type ", name],
  schedule: (name) => ["schedule ", link("schedules", { name }, name, { "data-key": `schedule ${name}` })],
  scan: (name) => ["scan ", link("scans", {}, name, { "data-key": `scan ${name}` })],
  task: (id) => taskOf(id),
  seconds: (length) => `for ${duration(length)}`,
  since: (length) => `dead for ${duration(length)} at most`,
  reason: (text) => h("q", {}, text),
  limits: (text) => text,
  corrected: () => "with another body",
};
const MORE = 1000;

const taskOf = (id) => link("task", { id }, short(id), { "data-key": `task ${id}`, title: id });

function parts(row) {
  const named = Object.entries(row.facts).map(([name, fact]) => SHOWN[name]?.(fact) ?? `${name} ${fact}`);
  if (row.count) named.push([`${count(row.count)} ${row.count === 1 ? "task" : "tasks"}`, row.tasks.map((id, n) => [n ? ", " : ": ", taskOf(id)]), row.tasks.length && row.count > row.tasks.length ? ", …" : ""]);
  return h("span", { class: "prose" }, named.map((part, n) => [n ? ", " : "", part]));
}

export function operators(params) {
  const limit = params.all ? MORE : 100;
  const list = h("div", {}), foot = h("footer", {});
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Actions")),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "What operators did"), h("span", { class: "muted" }, `on this page and by the command line; the last ${count(MORE)} are kept`)),
      list, foot),
  ];
  const show = whenChanged((found) => {
    replace(list, found.length ? table("Actions", [
      { label: "When", kind: "tight", cell: (row) => h("span", { title: moment(row.at) }, time(row.at)) },
      { label: "Who", kind: "name", cell: (row) => h("span", {}, row.by, row.token && row.token !== row.by && h("span", { class: "muted" }, ` by the token ${row.token}`)) },
      { label: "Did", kind: "tight", cell: (row) => DID[row.what] ?? row.what },
      { label: "To what", kind: "name", cell: parts },
    ], found) : empty("Nothing yet", "Pauses, limits, cancels, redrives and drops are listed here."));
    replace(foot, h("span", {}, `${count(found.length)} shown`), h("span", { class: "push" }),
      !params.all && found.length === limit && link("actions", { all: "1" }, "Show all", { class: "button", "data-key": "all" }));
  });
  const refresh = async () => show(await get("actions", { limit }));
  return { element, every: 5000, refresh };
}
