// The actions, each asked for, done and told in the same way wherever it is offered.

import { act, get } from "../api.js";
import { askLimit, attempt, confirmed, toast } from "../dialogs.js";
import { count } from "../format.js";

const MOST = 10000; // dead letters that one word redrives

export async function pause(context, group) {
  if (!(await context.act())) return false;
  return attempt(() => act("pause", { group }), (answer) => (answer.changed ? `${group} is paused: what runs goes on to its end.` : `${group} was paused already.`));
}

export async function resume(context, group) {
  if (!(await context.act())) return false;
  const what = group ?? "Everything";
  const target = group === null ? { everything: true } : { group };
  return attempt(() => act("resume", target), (answer) => (answer.changed ? `${what} goes on.` : `${what} was not paused.`));
}

// Of a target, { group } or { tenant }; `now` is what was set by hand before, if anything was.
export async function limit(context, target, now) {
  if (!(await context.act())) return false;
  const what = target.group ?? `tenant ${target.tenant}`;
  const saved = await askLimit(`Limit ${what}`, now, target.group ? "1 or more" : "0: any number", (order) => act("limit", { ...target, ...order }));
  if (saved) toast(`${what} is limited: what runs goes on to its end.`);
  return saved;
}

export async function endLimit(context, target) {
  if (!(await context.act())) return false;
  const what = target.group ?? `Tenant ${target.tenant}`;
  return attempt(() => act("limit/end", target), (answer) => (answer.changed ? `${what} goes on as configured.` : `${what} was not limited by hand.`));
}

export async function redrive(context, ids) {
  return many(context, "dead/redrive", ids, "Redrive", "Each becomes a task again, at its original place in its group.", false);
}

// All that match a filter: found first, page by page, so that what is asked for is what is done.
export async function redriveAll(context, filter) {
  if (!(await context.act())) return false;
  const ids = [];
  let passed = "0";
  while (passed !== null && ids.length < MOST) {
    const page = await get("dead", { ...filter, passed, limit: 500 });
    ids.push(...page.letters.map((letter) => letter.id));
    passed = page.next;
  }
  const more = passed === null ? "" : ` The latest ${count(MOST)} of more.`;
  if (!ids.length || !(await confirmed(`Redrive all ${count(ids.length)} that match?`, `Each becomes a task again, at its original place in its group.${more}`, "Redrive"))) return false;
  let done = 0;
  const stayed = [];
  return attempt(async () => {
    for (let from = 0; from < ids.length; from += 500) {
      const answer = await act("dead/redrive", { ids: ids.slice(from, from + 500) });
      done += answer.done.length;
      stayed.push(...answer.stayed);
    }
  }, () => `${count(done)} redriven${stayed.length ? `; ${count(stayed.length)} stayed: ${stayed[0].reason}` : ""}`);
}

export async function drop(context, ids) {
  return many(context, "dead/drop", ids, "Drop", "They are removed for good, bodies and all. A group that was parked behind one goes on.", true);
}

export async function dropTask(context, id) {
  return one(context, "task/drop", id, "Drop", "It is removed for good, body and all. Its group goes on.", "dropped", true);
}

export async function runNow(context, id) {
  return one(context, "task/run-now", id, "Run", "It is due from now on, and runs at its turn.", "due", false);
}

export async function runSchedule(context, name) {
  if (!(await context.act())) return false;
  if (!(await confirmed(`Run ${name} now?`, "One more task is made. What is due stays due.", "Run", false))) return false;
  return attempt(() => act("schedules/run", { name }), (answer) => `${name}: task ${answer.task}`);
}

export async function pauseSchedule(context, name) {
  if (!(await context.act())) return false;
  return attempt(() => act("schedules/pause", { name }), (answer) => (answer.changed ? `${name} is paused: its ticks pass by.` : `${name} was paused already.`));
}

export async function resumeSchedule(context, name) {
  if (!(await context.act())) return false;
  return attempt(() => act("schedules/resume", { name }), (answer) => (answer.changed ? `${name} goes on.` : `${name} was not paused.`));
}

async function one(context, path, id, verb, text, past, danger) {
  if (!(await context.act())) return false;
  if (!(await confirmed(`${verb} task ${id}?`, text, verb, danger))) return false;
  return attempt(() => act(path, { ids: [id] }), (answer) => (answer.stayed.length ? `${id} stays: ${answer.stayed[0].reason}` : `${id} is ${past}`));
}

async function many(context, path, ids, verb, text, danger) {
  if (!(await context.act())) return false;
  const what = ids.length === 1 ? `dead letter ${ids[0]}` : `${count(ids.length)} dead letters`;
  if (!(await confirmed(`${verb} ${what}?`, text, verb, danger))) return false;
  const past = { Redrive: "redriven", Drop: "dropped" }[verb];
  return attempt(() => act(path, { ids }), (answer) => {
    const stayed = answer.stayed.length ? `; ${count(answer.stayed.length)} stayed: ${answer.stayed[0].reason}` : "";
    return `${count(answer.done.length)} ${past}${stayed}`;
  });
}
