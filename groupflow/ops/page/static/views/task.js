// One task: where it is, what it was published with, and what has happened to it.

import { find } from "../api.js";
import { badge, card, empty, facts, h, link, progressOf, replace, whenChanged } from "../dom.js";
import { ago, ahead, duration, moment } from "../format.js";
import { cancelTasks, dropTasks, runNow } from "./actions.js";
import { attemptsOf } from "./attempts.js";
import { bodyOf, headersOf } from "./body.js";
import { correctionsOf } from "./corrections.js";

const LIVE = new Set(["queued", "running", "delayed"]);

export function task(params, context) {
  const id = params.id ?? "";
  const tenant = params.tenant; // where several have the id
  const state = h("span", {});
  const actions = h("div", { class: "push" });
  const about = h("section", { class: "card" });
  const attempts = h("div", {});
  const body = h("div", {});
  const size = h("span", { class: "muted" });
  const heading = h("h2", {}, "Body");
  let asked = ""; // what is shown of it
  let shown = { id };
  const element = [
    h("p", { class: "small" }, link("tasks", {}, "← Tasks")),
    h("div", { class: "title" }, h("h1", {}, id), state, actions),
    about,
    h("div", { class: "columns top" },
      card("Attempts", "failed ones, and the one that runs", attempts),
      h("section", { class: "card" }, h("header", {}, heading, size), body)),
  ];
  const button = (tone, verb, text) => h("button", { type: "button", class: tone, "data-key": text, onclick: () => verb(context, [shown]).then(refresh) }, text);
  const showActions = whenChanged((found, isEarly) => replace(actions,
    isEarly && button("primary", runNow, "Run now"),
    LIVE.has(found) && button("danger", cancelTasks, "Cancel"),
    (found === "delayed" || found === "queued") && button("danger", dropTasks, "Drop")));
  const showAttempts = whenChanged((errors, running, corrections) => replace(attempts, attemptsOf(errors, running), correctionsOf(corrections)));

  async function showBody(found) {
    const gave = found.state === "done" && (found.result !== null || found.result_error);
    const path = LIVE.has(found.state) ? "body" : gave ? "result" : "";
    heading.textContent = found.state === "done" ? "Result" : "Body";
    if (path && asked === path) return; // once: it doesn't change
    const content = path && await find(path, { id, tenant: found.tenant ?? tenant });
    asked = path;
    if (!content) {
      size.textContent = "";
      replace(body, none(found));
      return;
    }
    const [told, content_] = bodyOf(content, context, () => { asked = ""; return refresh(); }, heading.textContent);
    size.textContent = told;
    replace(body, content_, headersOf(content.headers));
  }

  // Why neither a body nor a result is there.
  function none({ state, tenant: owner, result_error: error }) {
    if (state === "dead") return empty("It is a dead letter", link("letter", { id, tenant: owner }, "See its body there", { "data-key": "letter" }));
    if (state === "done") return empty("No result", error ?? "Its handler returned none, or it was dropped to keep those of later tasks.");
    return empty("No body", "Of a task that has ended only its line in the history is kept.");
  }

  async function refresh() {
    const found = await find("task", { id, tenant });
    if (!found) {
      replace(state);
      showActions("", false);
      replace(about, empty("There is no such task", "It was never enqueued, or ended longer ago than history.retention."));
      showAttempts([], false, []);
      replace(body, empty("–", ""));
      return;
    }
    shown = found;
    const isOver = !LIVE.has(found.state) && found.state !== "dead";
    const runs = found.state === "running" && { since: found.since, attempt: found.attempt };
    replace(state, badge(found.state));
    showActions(found.state, LIVE.has(found.state) && Boolean(found.until));
    about.dataset.state = found.state;
    replace(about, [told(found), found.silence].filter(Boolean).map((words) => h("p", { class: "lead" }, words)), h("div", { class: "body" }), facts([
      [runs ? "Will be superseded by" : "Superseded by", found.superseded_by && link("task", { id: found.superseded_by }, found.superseded_by, { "data-key": "newer" })],
      ["Cancelled by", found.state === "cancelled" && found.cancelled_by],
      ["Type", found.type && link("type", { name: found.type }, found.type, { "data-key": "type" })],
      ["Group", found.group ? link("group", { key: found.group }, found.group, { "data-key": "group" }) : "none, it is plain"],
      ["Tenant", found.tenant && link("tenant", { name: found.tenant }, found.tenant, { "data-key": "tenant" })],
      ["Pool", found.pool && link("pools", {}, found.pool, { "data-key": "pool" })],
      ["Attempt", String(found.attempt)],
      ["Crashes", found.crashes ? String(found.crashes) : null],
      ["Lost leases", found.lost_leases ? String(found.lost_leases) : null],
      ["Stage", found.stage],
      ["Worker", found.daemon && (found.worker ? `${found.daemon}, ${found.worker}` : found.daemon)],
      ["Progress", progressOf(found.progress)],
      ["Fence", found.fence && String(found.fence)],
      ["Enqueued", found.enqueued_at && h("span", { title: ago(found.enqueued_at) }, moment(found.enqueued_at))],
      ["Started", found.began_at && h("span", { title: ago(found.began_at) }, moment(found.began_at))],
      ["Took", found.seconds === null ? null : duration(found.seconds)],
      [isOver ? "Ended" : "Since", found.since && h("span", { title: moment(found.since) }, ago(found.since))],
      [found.state === "expired" ? "Had to start by" : "Has to start by", found.start_by && h("span", { title: moment(found.start_by) }, moment(found.start_by))],
      ["Until", found.until && h("span", { title: moment(found.until) }, ahead(found.until))],
    ]));
    showAttempts(found.errors, runs, found.corrections);
    await showBody(found);
  }
  return { element, every: 1000, refresh };
}

// Why it is as it is: of a task that runs, who wants it cancelled.
function told({ state, reason, cancelled_by, asked_at }) {
  if (state !== "running" || !cancelled_by) return reason;
  return `Asked to stop${asked_at ? ` ${ago(asked_at)}` : ""}, by ${cancelled_by}${reason ? ` (${reason})` : ""}: its handler has not ended yet.`;
}
