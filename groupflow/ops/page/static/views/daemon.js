// One daemon: what it is, what it does in each partition, which tasks it holds.

import { find } from "../api.js";
import { badge, card, empty, facts, h, link, meter, progressOf, replace, short, table } from "../dom.js";
import { ago, count, duration, moment, now, time } from "../format.js";

const ROLES = { archiver: "archives dead letters", relay: "relays events" };

export function daemon(params) {
  const name = params.name ?? "";
  const state = h("span", {});
  const about = h("section", { class: "card" });
  const places = h("div", {});
  const tasks = h("div", {});
  const shown = h("span", {});
  const element = [
    h("p", { class: "small" }, link("overview", {}, "← Overview")),
    h("div", { class: "title" }, h("h1", {}, name), state),
    about,
    card("Claimed tasks", [shown, "the oldest claim of each partition first; prefetched ones too"], tasks),
    card("Partitions", "", places),
  ];

  async function refresh() {
    const found = await find("daemon", { name });
    if (!found) {
      replace(state);
      replace(about, empty("There is no such daemon", "It has stopped, or its lease has ended."));
      replace(places);
      replace(tasks);
      return;
    }
    const isLate = found.partitions.every((row) => row.lease_left <= 0);
    replace(state, badge(isLate ? "late" : found.draining ? "draining" : "running"));
    const pools = Object.entries(found.workers);
    replace(about, isLate && h("p", { class: "lead" }, "Its lease has run out: it died, or hangs. Another daemon takes over what it holds, as soon as one runs."), found.intake && h("p", { class: "lead" }, `Its intake is paused since ${time(found.intake.since)}: ${found.intake.paused}.`), h("div", { class: "body" }), facts([
      ["Version", found.version],
      ["Host", found.host],
      ["Pid", String(found.pid)],
      ["Up for", found.started_at && h("span", { title: moment(found.started_at) }, duration(now() - found.started_at))],
      ...pools.map(([pool, size]) => [`Busy ${pool} workers`, [`${count(found.busy[pool])} of ${count(size)}`, meter(found.busy[pool] / size)]]),
      ["Parts", found.parts.join(", ")],
    ]));
    replace(places, table("Partitions", [
      { label: "Partition", kind: "number", cell: (row) => row.partition },
      { label: "Lease left", kind: "number", cell: (row) => (row.lease_left > 0 ? duration(row.lease_left) : "run out") },
      { label: "Claims", kind: "number", cell: (row) => count(row.claims) },
      { label: "Role", kind: "name", cell: (row) => row.roles.map((role) => ROLES[role] ?? role).join(", ") || "–" },
    ], found.partitions));
    const held = found.partitions.reduce((sum, row) => sum + row.claims, 0);
    shown.textContent = found.tasks.length < held ? `${count(found.tasks.length)} of ${count(held)}, ` : "";
    replace(tasks, found.tasks.length ? table("Claimed tasks", [
      { label: "Task", kind: "name", cell: (row) => link("task", { id: row.id, tenant: row.tenant }, short(row.id), { "data-key": row.id, title: row.id }) },
      { label: "Type", kind: "name", cell: (row) => row.type },
      { label: "Group", kind: "name", cell: (row) => (row.group ? link("group", { key: row.group }, row.group, { "data-key": `group ${row.id}` }) : h("span", { class: "muted" }, "plain")) },
      { label: "Worker", kind: "name", cell: (row) => row.worker },
      { label: "Progress", kind: "name", cell: (row) => progressOf(row.progress) },
      { label: "Claimed", kind: "number", cell: (row) => h("span", { title: moment(row.since) }, ago(row.since)) },
    ], found.tasks) : empty("It holds no task", ""));
  }
  return { element, every: 2000, refresh };
}
