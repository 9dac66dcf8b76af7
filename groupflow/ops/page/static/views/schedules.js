// Schedules: when each is due, what became of its last runs; run now, pause, resume.

import { get } from "../api.js";
import { badge, empty, h, link, replace, table } from "../dom.js";
import { ago, ahead, count, duration, moment } from "../format.js";
import { pauseSchedule, resumeSchedule, runSchedule } from "./actions.js";

const RUNS = 5; // shown in the table; all that are remembered below it

export function schedules(params, context) {
  const list = h("div", {});
  const history = h("div", {});
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Schedules")),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "All schedules"), h("span", { class: "muted" }, "by Redis's clock")), list),
    history,
  ];
  async function refresh() {
    const found = (await get("schedules")).schedules;
    replace(list, found.length ? table("Schedules", [
      { label: "Schedule", kind: "name", cell: (row) => link("schedules", { name: row.name }, row.name, { "data-key": row.name }) },
      { label: "When", kind: "name", cell: when },
      { label: "Next run", kind: "number", cell: next },
      { label: "Last run", kind: "number", cell: (row) => (row.last_at === null ? "" : h("span", { title: moment(row.last_at) }, ago(row.last_at))) },
      { label: "Last outcomes", kind: "tight", cell: (row) => row.runs.slice(0, RUNS).map((run) => badge(run.outcome)) },
      { label: "Missed", kind: "number", cell: (row) => count(row.missed_total) },
      { label: "", kind: "actions", cell: (row) => [
        h("button", { type: "button", "data-key": `run ${row.name}`, onclick: () => runSchedule(context, row.name).then(refresh) }, "Run now"),
        row.paused
          ? h("button", { type: "button", "data-key": `hold ${row.name}`, onclick: () => resumeSchedule(context, row.name).then(refresh) }, "Resume")
          : h("button", { type: "button", "data-key": `hold ${row.name}`, onclick: () => pauseSchedule(context, row.name).then(refresh) }, "Pause"),
      ] },
    ], found) : empty("No schedules", "A daemon runs with none in its configuration."));
    const chosen = found.find((row) => row.name === params.name);
    replace(history, chosen && h("section", { class: "card" },
      h("header", {}, h("h2", {}, `Runs of ${chosen.name}`), h("span", { class: "muted" }, "the last 20, the newest first")),
      chosen.runs.length ? table("Runs", [
        { label: "Task", kind: "name", cell: (run) => link("task", { id: run.task }, run.task, { "data-key": run.task }) },
        { label: "Due", kind: "number", cell: (run) => moment(run.at) },
        { label: "Started by", kind: "tight", cell: (run) => (run.kind === "now" ? "operator" : "schedule") },
        { label: "Outcome", kind: "tight", cell: (run) => badge(run.outcome) },
        { label: "Took", kind: "number", cell: (run) => (run.ended_at === null ? "" : duration(run.ended_at - run.at)) },
      ], chosen.runs) : empty("It has not run yet", "")));
  }
  return { element, every: 2000, refresh };
}

function when(row) {
  return row.cron === null ? `every ${duration(row.every)}` : `${row.cron} ${row.timezone}`;
}

function next(row) {
  if (row.paused) return badge("paused");
  if (row.overdue > row.interval) return h("span", { title: moment(row.next_at) }, `overdue for ${duration(row.overdue)}`);
  return h("span", { title: moment(row.next_at) }, ahead(row.next_at));
}
