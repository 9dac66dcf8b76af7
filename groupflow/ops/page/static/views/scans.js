// Scans of tables: how many shards are at work, what is done, deferred and dead.

import { get } from "../api.js";
import { empty, h, link, replace, table } from "../dom.js";
import { ago, count } from "../format.js";

export function scans() {
  const list = h("div", {});
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Scans")),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "Tables that are worked through in shards"), h("span", { class: "muted" }, "a shard is a group, scan:name:0 and on")),
      list),
  ];
  async function refresh() {
    const found = await get("scans");
    replace(list, found.length ? table("Scans", [
      { label: "Scan", kind: "name", cell: (row) => link("group", { key: `scan:${row.name}:0` }, row.name, { "data-key": row.name }) },
      { label: "Shards", kind: "number", cell: (row) => (row.changing_to === null ? count(row.shards) : `${count(row.shards)} → ${count(row.changing_to)}`) },
      { label: "At work", kind: "number", cell: (row) => count(row.running) },
      { label: "Asleep", kind: "number", cell: (row) => count(row.idle) },
      { label: "Stand", kind: "number", cell: (row) => count(row.stopped) },
      { label: "Rows done", kind: "number", cell: (row) => count(row.rows_done) },
      { label: "Deferred", kind: "number", cell: (row) => count(row.rows_deferred) },
      { label: "Dead", kind: "number", cell: (row) => (row.rows_dead ? link("dead", { type: `scan:${row.name}` }, count(row.rows_dead)) : count(0)) },
      { label: "All done", kind: "tight", cell: (row) => (row.last_pass === null ? "not yet" : ago(row.last_pass)) },
      { label: "Trouble", kind: "name", cell: (row) => row.trouble },
    ], found) : empty("No scans", "No daemon's application has included one"));
  }
  return { element, every: 2000, refresh };
}
