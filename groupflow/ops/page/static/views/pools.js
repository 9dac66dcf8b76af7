// Pools: what waits for workers that pull, who they are, who is silent; and of one of them, what it holds.

import { get } from "../api.js";
import { badge, card, empty, h, link, progressOf, replace, short, table } from "../dom.js";
import { ago, ahead, count, duration, moment } from "../format.js";

export function pools(params) {
  return params.worker ? worker(params.pool ?? "", params.worker) : list();
}

function list() {
  const found = h("div", { class: "columns single" });
  const element = [h("div", { class: "title" }, h("h1", {}, "Pools")), found];
  async function refresh() {
    const all = await get("pools");
    replace(found, all.length ? all.map(pool) : card("None", "", empty("No pools", "[pools.NAME] in the configuration sets one up: its tasks wait for workers that come and ask.")));
  }
  return { element, every: 2000, refresh };
}

function pool(row) {
  const claimable = row.plain + row.groups;
  const waits = claimable ? `${count(claimable)} claimable, the oldest for ${duration(row.waited)}` : "nothing claimable";
  const more = row.known > row.workers.length ? `, ${count(row.workers.length)} of them below` : "";
  const limited = row.waiting ? `, ${count(row.waiting)} wait for the limits of their types` : "";
  const told = `${waits}${limited}; ${count(row.held)} held, workers: ${count(row.known)}${more}`;
  return card(row.name, told, row.workers.length ? table(`Workers of ${row.name}`, [
    { label: "Worker", kind: "name", cell: (one) => link("pools", { pool: row.name, worker: one.name }, one.name, { "data-key": `${row.name} ${one.name}` }) },
    { label: "Holds", kind: "number", cell: (one) => count(one.held) },
    { label: "Oldest claim", kind: "number", cell: (one) => (one.since === null ? "–" : ago(one.since)) },
    { label: "Last seen", kind: "number", cell: (one) => `${duration(one.heard)} ago` },
    { label: "Lease", kind: "number", cell: (one) => `${duration(one.lease_left)} left` },
    { label: "State", kind: "tight", cell: (one) => badge(one.is_silent ? "silent" : "alive") },
  ], row.workers) : empty("No worker pulls from it", "Start one by groupflow work, or let a program of yours pull by the API."));
}

function worker(of, name) {
  const tasks = h("div", {});
  const lease = h("span", { class: "muted" });
  const element = [
    h("p", { class: "small" }, link("pools", {}, "← Pools")),
    h("div", { class: "title" }, h("h1", {}, name)),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, `Tasks of pool ${of} that it holds`), lease), tasks),
  ];
  async function refresh() {
    const held = await get(`pools/${encodeURIComponent(of)}/workers/${encodeURIComponent(name)}`);
    lease.textContent = held.lease_until === null ? "it has no lease" : `its lease ends ${ahead(held.lease_until)}`;
    replace(tasks, held.tasks.length ? table("Tasks", [
      { label: "Task", kind: "name", cell: (row) => link("task", { id: row.id, tenant: row.tenant }, short(row.id), { "data-key": row.id, title: row.id }) },
      { label: "Type", kind: "name", cell: (row) => row.type },
      { label: "Group", kind: "name", cell: (row) => (row.group ? link("group", { key: row.group }, row.group, { "data-key": `group ${row.id}` }) : "–") },
      { label: "Attempt", kind: "number", cell: (row) => count(row.attempt) },
      { label: "Crashes", kind: "number", cell: (row) => count(row.crashes) },
      { label: "Progress", kind: "name", cell: (row) => progressOf(row.progress) },
      { label: "Since", kind: "number", cell: (row) => h("span", { title: moment(row.since) }, ago(row.since)) },
    ], held.tasks) : empty("It holds no task", ""));
  }
  return { element, every: 2000, refresh };
}
