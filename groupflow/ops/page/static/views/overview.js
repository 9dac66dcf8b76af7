// The whole at a glance: what waits and runs, how fast, who works, which groups stand out.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { address, badge, card, empty, h, link, replace, table, whenChanged } from "../dom.js";
import { ago, count, duration, now, rate, time } from "../format.js";
import { resume } from "./actions.js";
import { words } from "./by_hand.js";

const LATE = 0.6; // of the lease: a heartbeat's age from which it is pointed out
const SOME = 3; // pools, by name
const LATE_TOLD = 5; // seconds for which events may wait without a word

const RANGES = { "15min": { label: "15 min", seconds: 900, part: 300 }, "1h": { label: "1 h", seconds: 3600, part: 900 }, "24h": { label: "24 h", seconds: 86400, part: 21600, hours: 24, step: 240 } };

export function overview(params, context) {
  const chosen = Object.hasOwn(RANGES, params.range) ? params.range : "1h";
  const range = RANGES[chosen];
  const notices = h("div", { hidden: true });
  const tiles = h("div", { class: "tiles" });
  const daemons = h("div", {});
  const slowest = h("div", {});
  const longest = h("div", {});
  const looked = h("span", { class: "muted" });
  const rates = chart("Tasks a second", [
    { name: "In", tone: "blue", pick: (sample) => sample.taken_in },
    { name: "Done", tone: "green", pick: (sample) => sample.done },
    { name: "Dead", tone: "red", pick: (sample) => sample.buried },
  ], { show: rate, range });
  const latency = chart("Latency", [
    { name: "Wait, p50", tone: "blue", pick: (sample) => sample.waiting_p50 },
    { name: "p99", tone: "blue", dashed: true, pick: (sample) => sample.waiting_p99 },
    { name: "Run, p50", tone: "green", pick: (sample) => sample.running_p50 },
    { name: "p99", tone: "green", dashed: true, pick: (sample) => sample.running_p99 },
  ], { show: duration, mark: "≈ ", log: true, range });
  const waiting = chart("Tasks", [
    { name: "Waiting", tone: "blue", pick: (sample) => sample.queued, area: true },
    { name: "Running", tone: "green", pick: (sample) => sample.running },
  ], { show: (value) => (value >= 10000 ? `${count(value / 1000)} k` : count(value)), range });

  const element = [
    h("h1", { class: "visually-hidden" }, "Overview"),
    notices,
    tiles,
    h("nav", { class: "segments bare", "aria-label": "Range" }, Object.entries(RANGES).map(([name, { label }]) => link("overview", { range: name }, label, { "aria-current": name === chosen ? "true" : undefined, "data-key": `range ${name}` }))),
    h("div", { class: "columns" },
      card("Rates", "tasks a second", rates.element),
      card("Latency", "how long tasks waited and ran", latency.element)),
    h("div", { class: "columns" },
      card("Backlog", "tasks", waiting.element),
      card("Daemons", "", daemons)),
    h("div", { class: "columns" },
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Waiting longest"), looked), slowest),
      card("Longest queues", "of all groups, looked through in steps", longest)),
  ];

  const showNotices = whenChanged((pause, alive, waits, standing, heldBack, limited, said, untold, unpulled) => {
    const found = [];
    if (pause) found.push(h("div", { class: "notice" }, h("span", {}, `${pause.by} paused everything at ${time(pause.since)}: no task is started.`), h("button", { type: "button", class: "push", onclick: () => resume(context, null) }, "Resume everything")));
    if (!alive) found.push(h("div", { class: "notice bad" }, waits ? `No daemon is running, and ${count(waits)} tasks wait.` : "No daemon is running."));
    for (const one of standing) found.push(h("div", { class: "notice bad" }, `Intake of ${one.daemon} is paused since ${time(one.since)}: ${one.paused}.`));
    if (limited) found.push(h("div", { class: "notice" }, h("span", {}, `${count(limited)} ${limited === 1 ? "limit is" : "limits are"} set by hand: ${said.join("; ")}.`), link("limits", {}, "Limits", { class: "push", "data-key": "limits" })));
    for (const one of unpulled) found.push(h("div", { class: "notice bad" }, h("span", {}, `No worker pulls from pool ${one.name}, for which tasks wait: ${what(one)}.`), link("pools", {}, "Pools", { class: "push", "data-key": `pool ${one.name}` })));
    for (const one of heldBack) found.push(h("div", { class: "notice" }, h("span", {}, `Nothing is claimed from partition ${one.partition} since ${time(one.since)}: its Redis may have lost claims. Claims go on once every daemon has renewed its lease, or at ${time(one.until)}.`)));
    if (untold) found.push(h("div", { class: "notice bad" }, untold));
    notices.hidden = !found.length;
    replace(notices, found);
  });

  const showTiles = whenChanged((o) => {
    const tile = (name, state, value, more, href) => h(
      "a", { class: "tile", "data-state": state, href, "data-key": `tile ${name}` },
      h("div", { class: "name" }, name), h("div", { class: "value" }, count(value)), h("div", { class: "more" }, more));
    const running = o.running_grouped + o.running_plain;
    replace(tiles,
      tile("Queued", "queued", o.queued_grouped + o.queued_plain - o.asleep, `${count(o.queued_grouped - o.asleep)} grouped, ${count(o.queued_plain)} plain${o.asleep ? `; ${count(o.asleep)} idle shards` : ""}${forPools(o.pools)}`, address("tasks", { state: "queued" })),
      tile("Running", "running", running, `${count(o.running_grouped)} grouped, ${count(o.running_plain)} plain`, address("tasks", { state: "running" })),
      tile("Ready groups", "ready", o.ready, o.ready ? "wait for a worker" : o.alive ? "all have a worker" : "no daemon is running", address("groups", { state: "ready" })),
      tile("Delayed groups", "delayed", o.delayed, o.delayed_tasks > o.asleep ? `and ${count(o.delayed_tasks - o.asleep)} delayed tasks` : "", address("groups", { state: "delayed" })),
      tile("Parked groups", "parked", o.parked, o.parked ? "behind a dead letter" : "", address("groups", { state: "parked" })),
      tile("Paused groups", "paused", o.paused, "", address("groups", { state: "paused" })),
      tile("Dead letters", "dead", o.dead, `${count(o.done_total)} tasks done so far${["cancelled", "expired", "superseded", "dropped"].map((how) => (o[`${how}_total`] ? `, ${count(o[`${how}_total`])} ${how}` : "")).join("")}`, address("dead")));
  });

  const showDaemons = (o) => replace(daemons, o.daemons.length
    ? table("Daemons", [
      { label: "Daemon", kind: "name", cell: (row) => [link("daemon", { name: row.name }, row.name, { "data-key": `daemon ${row.name}` }), " ", row.late ? h("span", { title: "Its lease has run out" }, badge("late")) : row.draining && badge("draining")] },
      { label: "Version", kind: "tight", cell: (row) => row.version },
      { label: "Host", kind: "name", cell: (row) => row.host },
      { label: "Workers", kind: "number", cell: (row) => count(row.workers) },
      { label: "Heartbeat", kind: "number", cell: (row) => h("span", {}, `${duration(row.heartbeat_age)} ago`, !row.late && row.heartbeat_age > LATE * context.lease && h("span", { class: "badge", "data-state": "delayed" }, "late")) },
    ], o.daemons)
    : empty("No daemon is running", "Tasks wait until one is: groupflow run"));

  const groupTable = (caption, rows, none, title = "No group has a task waiting") => (rows.length
    ? table(caption, [
      { label: "Group", kind: "name", cell: (row) => link("group", { key: row.group }, row.group, { "data-key": `${caption} ${row.group}` }) },
      { label: "State", kind: "tight", cell: (row) => badge(row.state) },
      { label: "Waiting", kind: "number", cell: (row) => count(row.waiting) },
      { label: "Oldest task", kind: "number", cell: (row) => ago(row.oldest) },
    ], rows)
    : empty(title, none));

  return {
    element,
    every: 2000,
    onOverview(o) {
      const full = o.outbox_full ? `; events.max_memory is reached in ${count(o.outbox_full)} partition(s): nothing is claimed` : "";
      const untold = full || o.outbox_age >= LATE_TOLD ? `${count(o.outbox)} events wait to be told, the oldest for ${duration(o.outbox_age)}${full}.` : "";
      showNotices(o.everything_paused, alive(o), o.queued_grouped + o.queued_plain - o.asleep, o.intake, o.held_back, o.limited_groups + o.limited_tenants + o.limited_types, o.by_hand.slice(0, 3).map((row) => `${row.kind} ${row.name}, ${words(row)}, until ${time(row.until)}`), untold, o.pools.filter((one) => !one.workers).slice(0, SOME));
      showTiles({ ...o, alive: alive(o), at: 0, daemons: 0, outbox_age: 0 });
      showDaemons(o);
    },
    async refresh() {
      if (!context.latest) this.onOverview(await get("overview"));
      const [samples, tops] = await Promise.all([get("samples", { hours: range.hours ?? 1 }), get("tops")]);
      for (const each of [rates, latency, waiting]) each.update(samples.filter((sample) => sample.at <= now() + 5));
      const total = context.latest?.groups ?? tops.looked_at;
      looked.textContent = tops.looked_at < total ? `of ${count(tops.looked_at)} groups: running, paused, parked, delayed, next to run` : "";
      replace(slowest, groupTable("Waiting longest", tops.slowest, context.latest && !alive(context.latest) ? "No daemon is running." : "Every task starts at once."));
      replace(longest, groupTable("Longest queues", tops.longest, "Groups are looked through every 10 s.", tops.slowest.length ? "Not looked through yet" : undefined));
    },
  };
}

function alive(overview) {
  return Boolean(overview?.daemons.some((one) => !one.late));
}

// What no daemon runs: it waits for workers that pull.
function forPools(pools) {
  const said = pools.slice(0, SOME).map((one) => `${one.name} ${what(one)}`);
  return said.length ? `; for pools: ${said.join("; ")}${pools.length > SOME ? `; and ${count(pools.length - SOME)} more pools` : ""}` : "";
}

function what({ plain, groups }) {
  return [plain && `${count(plain)} plain`, groups && `groups ${count(groups)}`].filter(Boolean).join(", ");
}
