// Scans of tables: what each has done and left; of one its shards. Wake, pause, resume.

import { find, get } from "../api.js";
import { badge, card, empty, facts, h, link, replace, table } from "../dom.js";
import { ago, ahead, count, moment } from "../format.js";
import { changeScan, pause, resume } from "./actions.js";

export function scans(params, context) {
  return params.name ? scan(params.name, context) : list();
}

const NAMES = { asleep: "idle", gone: "missing" }; // of a shard's place, where the field has another
const dead = (row, name) => (row.rows_dead ? link("dead", { type: `scan:${name}` }, count(row.rows_dead), { "data-key": `dead ${row.index ?? name}` }) : count(0));
const passed = (row) => (row.last_pass === null ? "not yet" : h("span", { title: moment(row.last_pass) }, ago(row.last_pass)));

function list() {
  const found = h("div", {});
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Scans")),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "All scans"), h("span", { class: "muted" }, "of tables, each in shards")),
      found),
  ];
  async function refresh() {
    const all = await get("scans");
    replace(found, all.length ? table("Scans", [
      { label: "Scan", kind: "name", cell: (row) => link("scans", { name: row.name }, row.name, { "data-key": row.name }) },
      { label: "Shards", kind: "number", cell: (row) => (row.changing_to === null ? count(row.shards) : `${count(row.shards)} → ${count(row.changing_to)}`) },
      { label: "Running", kind: "number", cell: (row) => count(row.running) },
      { label: "Idle", kind: "number", cell: (row) => count(row.idle) },
      { label: "Stopped", kind: "number", cell: (row) => count(row.stopped) },
      { label: "Rows done", kind: "number", cell: (row) => count(row.rows_done) },
      { label: "Deferred", kind: "number", cell: (row) => count(row.rows_deferred) },
      { label: "Dead", kind: "number", cell: (row) => dead(row, row.name) },
      { label: "Last pass", kind: "tight", cell: passed },
      { label: "Error", kind: "name", cell: (row) => row.trouble },
    ], all) : empty("No scans", "No daemon's application has included one."));
  }
  return { element, every: 2000, refresh };
}

function scan(name, context) {
  const actions = h("div", { class: "push" });
  const about = h("section", { class: "card" });
  const shards = h("div", {});
  const element = [
    h("p", { class: "small" }, link("scans", {}, "← Scans")),
    h("div", { class: "title" }, h("h1", {}, name), actions),
    about,
    card("Shards", "each is a group: one daemon at a time runs it", shards),
  ];
  const button = (verb, text) => h("button", { type: "button", "data-key": verb, onclick: () => changeScan(context, verb, name).then(refresh) }, text);

  async function refresh() {
    const found = await find("scan", { name });
    if (!found) {
      replace(about, empty("There is no such scan", "It was dropped, or no daemon ever had it."));
      replace(actions);
      replace(shards);
      return;
    }
    const told = found.scan;
    const held = found.shards.filter((row) => row.held === "paused").length;
    replace(actions, button("wake", "Wake"), held < found.shards.length && button("pause", "Pause"), held > 0 && button("resume", "Resume"));
    about.dataset.state = told.trouble ? "dead" : "running";
    replace(about, told.trouble && h("p", { class: "lead" }, told.trouble), h("div", { class: "body" }), facts([
      ["Shards", told.changing_to === null ? count(told.shards) : `${count(told.shards)}, to become ${count(told.changing_to)}`],
      ["Running", count(told.running)],
      ["Idle", count(told.idle)],
      ["Stopped", count(told.stopped)],
      ["Rows done", count(told.rows_done)],
      ["Rows deferred", count(told.rows_deferred)],
      ["Rows dead", dead(told, name)],
      ["Last pass of all shards", passed(told)],
    ]));
    replace(shards, table("Shards", [
      { label: "Shard", kind: "name", cell: (row) => link("group", { key: row.group }, row.group, { "data-key": row.group }) },
      { label: "State", kind: "tight", cell: (row) => [badge(NAMES[row.place] ?? row.place), row.held && badge(row.held)] },
      { label: "Daemon", kind: "name", cell: (row) => row.daemon && link("daemon", { name: row.daemon }, row.daemon, { "data-key": `daemon ${row.index}` }) },
      { label: "Wakes", kind: "number", cell: (row) => row.until !== null && h("span", { title: moment(row.until) }, ahead(row.until)) },
      { label: "Rows done", kind: "number", cell: (row) => count(row.rows_done) },
      { label: "Deferred", kind: "number", cell: (row) => count(row.rows_deferred) },
      { label: "Dead", kind: "number", cell: (row) => dead(row, name) },
      { label: "Last pass", kind: "tight", cell: passed },
      { label: "Error", kind: "name", cell: (row) => row.trouble },
      { label: "", kind: "actions", cell: (row) => (row.held === "paused"
        ? h("button", { type: "button", class: "small", "data-key": `hold ${row.index}`, "aria-label": `Resume ${row.group}`, onclick: () => resume(context, row.group).then(refresh) }, "Resume")
        : h("button", { type: "button", class: "small", "data-key": `hold ${row.index}`, "aria-label": `Pause ${row.group}`, onclick: () => pause(context, row.group).then(refresh) }, "Pause")) },
    ], found.shards));
  }
  return { element, every: 2000, refresh };
}
