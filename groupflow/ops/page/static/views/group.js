// One group's story: what runs, since when, by whom; what waits in which order; why it isn't moving.

import { get } from "../api.js";
import { badge, card, empty, facts, h, link, meter, progressOf, replace, short, table, whenChanged } from "../dom.js";
import { ago, ahead, count, duration, moment, now, time } from "../format.js";
import { cancelGroup, endLimit, limit, pause, redrive, resume } from "./actions.js";

const PAGE = 50;
const LETTERS = 100; // of its dead letters
const MINUTES = 60;
const ENDS = { done: "done", others: "ended otherwise", dead: "dead" };
const SEEKS = 5000; // ms between two looks for what ended lately, which may have to read much

export function group(params, context) {
  const key = params.key ?? "";
  const passed = Number(params.passed ?? 0) || 0;
  const state = h("span", {});
  const actions = h("div", { class: "push" });
  const lead = h("div", { class: "card" });
  const line = h("div", {});
  const foot = h("footer", {});
  const failures = h("div", {});
  const lately = h("div", {});
  const hour = h("div", {});
  let ended = { lately: [], hour: [], hour_since: null };
  let sought = -Infinity;
  const element = [
    h("p", { class: "small" }, link("groups", {}, "← Groups")),
    h("div", { class: "title" }, h("h1", {}, key), state, actions),
    lead,
    card("Last hour", "tasks that ended, minute by minute", hour),
    h("div", { class: "columns top" },
      h("section", { class: "card" }, h("header", {}, h("h2", {}, "Waiting tasks"), h("span", { class: "muted" }, "the next to run first")), line, foot),
      h("div", { class: "columns single" },
        card("Recent failures", "of its tasks and dead letters", failures),
        card("Recently ended", "without dead letters; among the last 10,000 tasks of all groups in its partition", lately))),
  ];

  const showActions = whenChanged((isPaused, byHand) => replace(actions,
    h("button", { type: "button", "data-key": "limit", onclick: () => limit(context, { group: key }).then(refresh) }, "Limit"),
    byHand && h("button", { type: "button", "data-key": "end", onclick: () => endLimit(context, { group: key }).then(refresh) }, "End limits"),
    h("button", { type: "button", class: "danger", "data-key": "cancel", onclick: () => cancelGroup(context, key).then(refresh) }, "Cancel tasks"),
    isPaused ? h("button", { type: "button", "data-key": "hold", onclick: () => resume(context, key).then(refresh) }, "Resume")
    : h("button", { type: "button", "data-key": "hold", onclick: () => pause(context, key).then(refresh) }, "Pause")));

  const showHour = whenChanged((...facts) => replace(hour, strip(...facts)));

  const isKnown = (why, letters) => why.state !== "idle" || why.queued + why.aside + ended.lately.length + letters.letters.length > 0;

  function showLead(why, letters) {
    const behind = letters.letters.find((letter) => letter.id === why.behind);
    const holder = why.holder;
    const left = holder && h("div", {}, duration(holder.lease_left), meter(holder.lease_left / context.lease));
    lead.dataset.state = why.state;
    replace(lead,
      h("p", { class: "lead" }, isKnown(why, letters) ? why.reason : "Nothing is known of a group of this key: no task of it waits or has ended lately."),
      why.behind && h("div", { class: "form row" }, "Parked behind", link("letter", { id: why.behind, tenant: behind?.tenant }, short(why.behind), { "data-key": "behind", title: why.behind }),
        h("button", { type: "button", class: "primary", "data-key": "redrive", onclick: () => redrive(context, [behind ?? { id: why.behind }]).then(refresh) }, "Redrive")),
      facts([
        ["Waiting", why.max_queued ? `${count(why.queued)} of at most ${count(why.max_queued)}${why.is_full ? ": its group is full" : ""}` : count(why.queued)],
        [why.state === "running" ? "Runs" : "Next", why.head && link("task", { id: why.head }, short(why.head), { title: why.head, "data-key": "head" })],
        ["Progress", progressOf(why.progress)],
        ["Worker", holder && `${holder.daemon}, ${holder.worker}`],
        ["Since", why.since && h("span", { title: moment(why.since) }, ago(why.since))],
        ["Lease left", left],
        ["Fence", holder && String(holder.fence)],
        ["Limits by hand until", why.by_hand_until && h("span", { title: moment(why.by_hand_until) }, ahead(why.by_hand_until))],
        ["Until", why.until && h("span", { title: moment(why.until) }, ahead(why.until))],
      ]));
  }

  function showLine(lane) {
    const rows = lane.tasks.map((task, index) => ({ ...task, place: passed + index + 1 }));
    replace(line, rows.length ? table("Waiting tasks", [
      { label: "Place", kind: "number", cell: (row) => count(row.place) },
      { label: "Task", kind: "name", cell: (row) => link("task", { id: row.id, tenant: row.tenant }, short(row.id), { "data-key": row.id, title: row.id }) },
      { label: "Type", kind: "name", cell: (row) => row.type },
      { label: "Enqueued", kind: "number", cell: (row) => h("span", { title: moment(row.enqueued_at) }, ago(row.enqueued_at)) },
      { label: "Attempt", kind: "number", cell: (row) => [row.attempt > 1 || row.due ? `${row.attempt}` : "1", row.crashes > 0 && `, ${row.crashes} crashes`, row.lost_leases > 0 && `, ${row.lost_leases} lost leases`] },
      { label: "Due", kind: "number", cell: (row) => (row.due && row.due > now() ? ahead(row.due) : "") },
    ], rows) : empty("No task waits", ""));
    const end = passed + rows.length;
    replace(foot,
      h("span", {}, lane.total ? `${count(passed + 1)} to ${count(end)} of ${count(lane.total)}` : "0 waiting"),
      h("span", { class: "push" }),
      passed > 0 && link("group", { key }, "First page", { class: "button" }),
      end < lane.total && link("group", { key, passed: end }, "Next page", { class: "button" }));
  }

  function showLately(tasks) {
    replace(lately, tasks.length ? table("Recently ended tasks", [
      { label: "Task", kind: "name", cell: (row) => link("task", { id: row.id }, short(row.id), { "data-key": `ended ${row.id}`, title: row.id }) },
      { label: "State", kind: "tight", cell: (row) => badge(row.state) },
      { label: "Type", kind: "name", cell: (row) => row.type },
      { label: "Ended", kind: "number", cell: (row) => h("span", { title: moment(row.since) }, ago(row.since)) },
      { label: "Took", kind: "number", cell: (row) => row.seconds !== null && duration(row.seconds) },
      { label: "Daemon", kind: "name", cell: (row) => row.daemon },
    ], tasks) : empty("None", ""));
  }

  function showFailures(running, lane, letters) {
    const found = [];
    for (const each of [running, ...lane.tasks]) {
      for (const error of each?.errors ?? []) found.push({ id: each.id, tenant: each.tenant, view: "task", title: `attempt ${error.attempt ?? "–"}: ${error.error}`, text: error.message, at: error.at });
    }
    for (const each of letters.letters) found.push({ id: each.id, tenant: each.tenant, view: "letter", title: "dead letter", text: each.reason, at: each.died_at });
    found.sort((a, b) => (b.at ?? Infinity) - (a.at ?? Infinity));
    replace(failures, found.length
      ? h("ul", { class: "failures" }, found.slice(0, 12).map((each) => h("li", {},
        h("div", {}, link(each.view, { id: each.id, tenant: each.tenant }, each.id, { "data-key": `failure ${each.id}` }), ` · ${each.title}`, each.at && h("span", { class: "muted" }, ` · ${ago(each.at)}`)),
        h("div", { class: "muted" }, each.text.split("\n", 1)[0]))))
      : empty("None", letters.next === null ? "" : `${count(letters.looked_at)} dead letters were searched.`));
  }

  async function refresh() {
    const seeks = performance.now() - sought >= SEEKS;
    const [story, letters] = await Promise.all([
      get("group", { key, passed, limit: PAGE, lately: seeks ? null : 0 }),
      get("dead", { group: key, limit: LETTERS }),
    ]);
    const { why, lane } = story;
    const running = why.state === "running" && why.head ? await get("task", { id: why.head }).catch(() => null) : null;
    replace(state, badge(why.state));
    showActions(why.is_paused, why.by_hand_until !== null);
    if (seeks) [ended, sought] = [story, performance.now()];
    showLead(why, letters);
    showLine(lane);
    showFailures(running, lane, letters);
    showLately(ended.lately);
    showHour(ended.hour, ended.hour_since && Math.floor(ended.hour_since / 60), letters.letters.map((letter) => letter.died_at), letters.next !== null, Math.floor(now() / 60));
  }

  return { element, every: 1000, refresh };
}

// The hour up to the minute `last` as a bar a minute; dead letters, by when they died, as far as they are known.
function strip(hour, since, deaths, areMore, last) {
  const cells = Array.from({ length: MINUTES }, (_, place) => ({ at: 60 * (last - MINUTES + 1 + place), done: 0, others: 0, seconds: 0, dead: 0 }));
  const cellOf = (at) => cells[Math.floor(at / 60) - last + MINUTES - 1];
  for (const minute of hour) if (cellOf(minute.at)) Object.assign(cellOf(minute.at), minute);
  for (const at of deaths) if (cellOf(at)) cellOf(at).dead += 1;
  const sum = (name) => cells.reduce((all, cell) => all + cell[name], 0);
  const words = (of) => Object.entries(ENDS).map(([name, word]) => of(name) > 0 && `${count(of(name))} ${word}`).filter(Boolean).join(", ") || "no task ended";
  const said = words(sum) + (areMore ? " or more" : "");
  const most = Math.max(1, ...cells.map((cell) => cell.done + cell.others + cell.dead));
  const bar = (number, state) => {
    const shown = number > 0 && h("i", { "data-state": state });
    if (shown) shown.style.height = `${(100 * number) / most}%`;
    return shown;
  };
  const title = (cell) => `${time(cell.at)}: ${words((name) => cell[name])}${cell.done ? `; done on average in ${duration(cell.seconds / cell.done)}` : ""}`;
  return [
    h("div", { class: "strip", role: "img", "aria-label": `The last hour: ${said}` }, cells.map((cell) => h("span", { class: since !== null && cell.at < 60 * since && "unknown", title: title(cell) }, bar(cell.done, "done"), bar(cell.others, "cancelled"), bar(cell.dead, "dead")))),
    h("div", { class: "strip-foot" }, h("span", {}, "−60 min"), h("span", {}, said, since > last - MINUTES + 1 && `, known since ${time(60 * since)}`), h("span", {}, "now")),
  ];
}
