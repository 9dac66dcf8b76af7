// The actions: all views that offer one ask, act and report in the same way.

import { act } from "../api.js";
import { askLimit, attempt, confirmed, toast } from "../dialogs.js";
import { count } from "../format.js";

const PAST = { Redrive: "redriven", Drop: "dropped", Cancel: "cancelled", Run: "due" };
const LETTERS = "dead letter";
const TASKS = "task";
const NO_LETTERS = { done: [], stayed: [], matching: 0 };
const NO_TASKS = { waiting: 0, running: [] };

export async function pause(context, group) {
  if (!(await context.act())) return false;
  return attempt(() => act("pause", { group }), (answer) => `${group} ${answer.changed ? "is paused: what runs goes on to its end." : "was paused already."} ${answer.doubt ?? ""}`);
}

export async function resume(context, group) {
  if (!(await context.act())) return false;
  const what = group ?? "Everything";
  const target = group === null ? { everything: true } : { group };
  return attempt(() => act("resume", target), (answer) => (answer.changed ? `${what} goes on.` : `${what} was not paused.`));
}

// Of a target, { group }, { tenant } or { type }; `now` is what was set by hand before, if anything was.
export async function limit(context, target, now) {
  if (!(await context.act())) return false;
  const what = target.group ?? (target.type ? `type ${target.type}` : `tenant ${target.tenant}`);
  let answer;
  const saved = await askLimit(`Limit ${what}`, now, target.group ? "1 or more" : "0: no limit", async (order) => { answer = await act("limit", { ...target, ...order }); });
  if (saved) toast(`${what} is limited: what runs goes on to its end. ${answer.doubt ?? ""}`);
  return saved;
}

export async function endLimit(context, target) {
  if (!(await context.act())) return false;
  const what = target.group ?? (target.type ? `Type ${target.type}` : `Tenant ${target.tenant}`);
  return attempt(() => act("limit/end", target), (answer) => (answer.changed ? `${what} goes on as configured.` : `${what} was not limited by hand.`));
}

// Dead letters, each { id, tenant }.
export async function redrive(context, letters) {
  return many(context, "dead/redrive", letters, "Redrive", "Each becomes a task again, at its original place in its group.", false);
}

// All that match a filter; one without anything in it means all.
export async function redriveAll(context, filter, what = "that match") {
  return all(context, "dead/redrive", filter, what, "Redrive", "Each becomes a task again, at its original place in its group.", false);
}

export async function dropAll(context, filter, what = "that match") {
  return all(context, "dead/drop", filter, what, "Drop", "They are removed for good, bodies and all. Groups that were parked behind one go on.", true);
}

async function all(context, path, filter, what, verb, text, danger) {
  if (!(await context.act())) return false;
  const set = Object.entries(filter).filter(([, value]) => value !== "" && value !== undefined);
  const order = set.length ? Object.fromEntries(set) : { everything: true };
  const said = (answer) => told(answer, PAST[verb]);
  let matching = 0;
  const isCounted = await attempt(async () => { ({ matching } = await steps(path, { ...order, dry_run: true }, NO_LETTERS)); });
  if (isCounted && !matching) toast("None matches any more: look again.");
  if (!isCounted || !matching || !(await confirmed(`${verb} all ${count(matching)} ${what}?`, text, verb, danger))) return false;
  return attempt(() => steps(path, order, NO_LETTERS, said), said);
}

// All answers together, of as many calls as an order takes: each acts on a bounded number. Where one fails, its error
// tells what was done before, as `said` has it.
async function steps(path, order, none, said) {
  let sum = none;
  for (let cursor = "0"; cursor !== null;) {
    try {
      const answer = await act(path, { ...order, cursor });
      sum = Object.fromEntries(Object.entries(sum).map(([name, before]) => [name, Array.isArray(before) ? before.concat(answer[name]) : before + answer[name]]));
      cursor = answer.next;
    } catch (error) {
      if (cursor !== "0" && !order.dry_run) error.message = `${said(sum)}; then: ${error.message}`;
      throw error;
    }
  }
  return sum;
}

export async function drop(context, letters) {
  return many(context, "dead/drop", letters, "Drop", "They are removed for good, bodies and all. A group that was parked behind one goes on.", true);
}

// Tasks, each { id, tenant }.
export async function dropTasks(context, tasks) {
  return many(context, "task/drop", tasks, "Drop", "What waits is removed for good, body and all. Its group goes on.", true, TASKS);
}

export async function runNow(context, tasks) {
  return many(context, "task/run-now", tasks, "Run", "What is delayed is due from now on, and runs at its turn.", false, TASKS);
}

const VERDICTS = { unknown: "it isn't known any more", dead: "it is a dead letter: redrive or drop it" };

export async function cancelTasks(context, tasks) {
  return many(context, "task/cancel", tasks, "Cancel", "What waits ends now, without being run. What runs is asked to stop, and ends with its attempt. Their groups go on then.", true, TASKS);
}

export const cancelGroup = (context, group) => cancelAll(context, { group }, group);
export const cancelType = (context, type) => cancelAll(context, { type }, `type ${type}`);

// All tasks of a group or a type: counted first, and those that run are named.
async function cancelAll(context, which, name) {
  if (!(await context.act())) return false;
  let found;
  const isCounted = await attempt(async () => { found = await steps("task/cancel", { ...which, dry_run: true }, NO_TASKS); });
  if (!isCounted) return false;
  const { waiting, running } = found;
  const text = running.length ? `${count(running.length)} of them ${running.length > 1 ? "run now: they get" : "runs now: it gets"} asked to stop: ${running.slice(0, 5).join(", ")}${running.length > 5 ? ", …" : ""}.` : "They end now, without being run.";
  if (waiting + running.length === 0) {
    toast(`${name} has no tasks`);
    return false;
  }
  if (!(await confirmed(`Cancel all ${count(waiting + running.length)} tasks of ${name}?`, text, "Cancel tasks", true))) return false;
  const said = (sum) => `${count(sum.waiting)} cancelled${sum.running.length ? `, ${count(sum.running.length)} asked to stop` : ""}`;
  return attempt(() => steps("task/cancel", which, NO_TASKS, said), said);
}

const SCANNED = { wake: "is awake: its shards look for rows now.", pause: "is paused: each running shard ends its page.", resume: "goes on." };

// All shards of a scan; the verb is one of these.
export async function changeScan(context, verb, name) {
  if (!(await context.act())) return false;
  return attempt(() => act(`scans/${verb}`, { name }), () => `${name} ${SCANNED[verb]}`);
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

async function many(context, path, tasks, verb, text, danger, noun = LETTERS) {
  if (!(await context.act())) return false;
  const what = tasks.length === 1 ? `${noun} ${tasks[0].id}` : `${count(tasks.length)} ${noun}s`;
  // Of a task, "Cancel" alone would be what leaves a dialog.
  const yes = verb === "Cancel" ? `Cancel task${tasks.length > 1 ? "s" : ""}` : verb;
  if (!(await confirmed(`${verb} ${what}?`, text, yes, danger))) return false;
  return attempt(() => toEach(path, tasks, PAST[verb]), (answer) => (noun === TASKS && tasks.length === 1 && answer.done.length ? `${tasks[0].id} is ${answer.past ?? PAST[verb]}` : told(answer, PAST[verb])));
}

// Tenant by tenant, since two of them may have letters or tasks of one id.
async function toEach(path, letters, past) {
  const done = [];
  const stayed = [];
  let asked = 0; // tasks that run, and are to stop
  for (const tenant of new Set(letters.map(tenantOf))) {
    const some = letters.filter((letter) => tenantOf(letter) === tenant);
    for (let from = 0; from < some.length; from += 500) {
      const ids = some.slice(from, from + 500).map((letter) => letter.id);
      try {
        const answer = await act(path, { ids, tenant });
        for (const { id, verdict } of answer.tasks ?? []) {
          if (verdict === "cancelled" || verdict === "requested") done.push(id);
          else stayed.push({ id, reason: VERDICTS[verdict] ?? `it was ${verdict} already` });
          if (verdict === "requested") asked += 1;
        }
        done.push(...(answer.done ?? []));
        stayed.push(...answer.stayed);
      } catch (error) {
        if (error.status !== 409) {
          if (done.length) error.message = `${told({ done, stayed }, past)}; then: ${error.message}`;
          throw error;
        }
        stayed.push({ id: ids[0], reason: error.message });
      }
    }
  }
  return { done, stayed, past: asked ? (asked === done.length ? "asked to stop" : `cancelled or asked to stop (${count(asked)})`) : undefined };
}

// Empty where the row names no tenant; undefined, which chooses none, where it doesn't say.
function tenantOf({ tenant }) {
  return tenant === null ? "" : tenant;
}

function told({ done, stayed, past }, otherwise) {
  return `${count(done.length)} ${past ?? otherwise}${stayed.length ? `; ${count(stayed.length)} stayed: ${stayed[0].reason}` : ""}`;
}
