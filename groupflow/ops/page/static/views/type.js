// One type: what became of its attempts, when and how long they took; what of it waits and runs, and may.

import { get } from "../api.js";
import { card, empty, facts, h, link, replace, table } from "../dom.js";
import { about, count, duration, rate, time } from "../format.js";
import { cancelType, limit } from "./actions.js";
import { byHand } from "./by_hand.js";
import { columns } from "./tasks.js";
import { bounds, durations, each, spanOf, spans, steps } from "./types.js";

const SOME = 20;

export function type(params, context) {
  const name = params.name ?? "";
  const hours = spanOf(params);
  const said = h("div", {});
  const over = h("div", { class: "body" });
  const took = h("div", { class: "body" });
  const tasks = h("div", {});
  const may = h("div", { hidden: true });
  let set;
  const element = [
    h("p", { class: "small" }, link("types", { hours }, "← Types")),
    h("div", { class: "title" }, h("h1", {}, name), h("div", { class: "push" },
      h("button", { type: "button", "data-key": "limit", onclick: () => limit(context, { type: name }, set).then(refresh) }, "Limit"),
      h("button", { type: "button", class: "danger", "data-key": "cancel", onclick: () => cancelType(context, name).then(refresh) }, "Cancel tasks"))),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Attempts")), spans("type", params, hours), said),
    h("div", { class: "columns" }, card("Ended", "done, failed, dead", over), card("Durations", name.startsWith("scan:") ? "of pages of rows; each bar a quarter longer than the one before" : "each bar a quarter longer than the one before", took)),
    may,
    card("Tasks", h("span", {}, "those that run, then some that wait · ", link("tasks", { type: name }, "all of them"), " · ", link("dead", { type: name }, "dead letters")), tasks),
  ];

  async function refresh() {
    const [found, limits, running, queued] = await Promise.all([
      get("types", { hours, type: name }),
      get("limits"),
      get("tasks", { state: "running", type: name, limit: SOME }),
      get("tasks", { state: "queued", type: name, limit: SOME }),
    ]);
    const [row] = found.types;
    replace(said, row ? facts([
      ["Done", count(row.done)],
      ["Rate", rate(row.rate)],
      ["Retried", count(row.failed)],
      ["Dead", count(row.dead)],
      [name.startsWith("scan:") ? "Pages done" : "Stages done", row.stages > 0 && count(row.stages)],
      ["p50", about(row.duration_p50)],
      ["p95", about(row.duration_p95)],
    ]) : empty("No attempt has ended", "in this time"));
    replace(over, row ? [steps(found, row, { tall: true }), scale([time(found.since), `${each(found)}, ${count(most(row))} at most`, time(found.at)])] : empty("–", ""));
    const between = row?.histogram.length ? bounds([row]) : null;
    replace(took, between ? [durations(row, between, { tall: true }), scale([duration(10 ** ((between[0] - 1) / 10)), `${count(row.histogram.reduce((sum, [, number]) => sum + number, 0))} attempts`, duration(10 ** (between[1] / 10))])] : empty("–", ""));
    set = limits.limits.find((one) => one.kind === "type" && one.name === name);
    may.hidden = !set;
    replace(may, set && card("What it may", "", byHand(context, [set], refresh)));
    const rows = [...running.tasks.map((task) => ({ ...task, state: "running" })), ...queued.tasks.map((task) => ({ ...task, state: "queued" }))];
    replace(tasks, rows.length ? table("Tasks", columns(), rows) : empty("No task found", ""));
  }
  return { element, every: 3000, refresh };
}

const most = (row) => Math.max(...row.done_steps.map((done, n) => done + row.failed_steps[n] + row.dead_steps[n]));
const scale = (words) => h("div", { class: "scale" }, words.map((each) => h("span", {}, each)));
