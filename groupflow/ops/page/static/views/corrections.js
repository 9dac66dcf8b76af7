// A dead letter's body is corrected: the editor with the difference to the old one, and what a body was before.

import { act } from "../api.js";
import { confirmed, toast } from "../dialogs.js";
import { card, h, replace } from "../dom.js";
import { bytes, moment } from "../format.js";
import { indented } from "./body.js";

const MOST = 1000000; // pairs of lines that are compared; of more, all lines count as changed
const AROUND = 2; // lines that are shown around a change

// Bodies that a task had before, as `corrections` of a task or a letter has them.
export function correctionsOf(corrections) {
  return corrections.length > 0 && h("ul", { class: "failures", "aria-label": "Earlier bodies" }, corrections.map((each) => h("li", {},
    h("div", {}, `body corrected${each.by ? ` by ${each.by}` : ""}`, h("span", { class: "muted" }, ` · ${moment(each.at)}`)),
    h("div", { class: "small" }, `before: ${bytes(each.bytes)}${each.is_cut ? ", its beginning" : ""}${each.body_base64 === null ? "" : ", as base64"}, SHA-256 `, h("code", {}, each.sha256)),
    (each.body ?? each.body_base64) !== null && h("pre", { class: "document", tabindex: "0", "aria-label": "Body before" }, each.body === null ? each.body_base64 : indented(each.body)))));
}

// Of a letter, as `get("letter")` gives it; `done` once it is a task again, `close` where nothing is to be done.
export function editorOf(found, context, done, close) {
  const old = indented(found.body ?? "");
  const text = h("textarea", { name: "body", rows: Math.min(24, Math.max(6, old.split("\n").length + 1)), spellcheck: "false", value: old });
  const trouble = h("p", { class: "wrap", role: "alert" });
  const difference = h("pre", { class: "document diff", tabindex: "0", "aria-label": "Difference" });
  const send = h("button", { type: "submit", class: "primary" }, "Redrive with this body");

  function check() {
    const problem = problemOf(text.value);
    trouble.textContent = problem;
    send.disabled = problem !== "" || text.value === old;
    replace(difference, text.value === old ? "No difference yet" : shown(compared(old, problem ? text.value : indented(text.value))));
  }

  async function save(event) {
    event.preventDefault();
    if (!(await context.act())) return;
    if (!(await confirmed(`Redrive ${found.id} with this body?`, "It becomes a task again, at its original place in its group. The old body stays with its attempts.", "Redrive"))) return;
    send.disabled = true;
    try {
      const answer = await act("dead/redrive", { ids: [found.id], tenant: found.tenant ?? "", body: text.value });
      if (answer.done.length) {
        toast("1 redriven with a corrected body");
        done();
        return;
      }
      trouble.textContent = answer.stayed[0].reason;
    } catch (error) {
      trouble.textContent = error.message;
    }
    send.disabled = false;
  }

  text.addEventListener("input", check);
  check();
  return card("Correct the body", "JSON; its group and tenant stay", h("form", { class: "form", onsubmit: save },
    h("label", { class: "grow wide" }, "Corrected body", text), trouble,
    h("div", { class: "wide" }, difference),
    send, h("button", { type: "button", onclick: close }, "Cancel")));
}

// What keeps a text from being a body; empty if nothing does.
function problemOf(text) {
  try {
    const value = JSON.parse(text);
    return value === null || typeof value !== "object" || Array.isArray(value) ? "A body is a JSON object: {…}." : "";
  } catch (error) {
    return `This is not JSON: ${error.message}`;
  }
}

// The lines of two texts: [["same" | "gone" | "new", line], …], by the longest common sequence of what differs.
export function compared(before, after) {
  const old = before.split("\n");
  const now = after.split("\n");
  let head = 0;
  while (head < Math.min(old.length, now.length) && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - head && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  const same = (lines) => lines.map((line) => ["same", line]);
  return [
    ...same(old.slice(0, head)),
    ...changed(old.slice(head, old.length - tail), now.slice(head, now.length - tail)),
    ...same(old.slice(old.length - tail)),
  ];
}

function changed(old, now) {
  const gone = (lines) => lines.map((line) => ["gone", line]);
  const added = (lines) => lines.map((line) => ["new", line]);
  if (old.length * now.length > MOST) return [...gone(old), ...added(now)];
  const lengths = Array.from({ length: old.length + 1 }, () => new Uint32Array(now.length + 1)); // of what is common behind
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = old[i] === now[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < old.length && j < now.length) {
    if (old[i] === now[j]) {
      lines.push(["same", old[i]]);
      [i, j] = [i + 1, j + 1];
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) lines.push(...gone([old[i++]]));
    else lines.push(...added([now[j++]]));
  }
  return [...lines, ...gone(old.slice(i)), ...added(now.slice(j))];
}

function shown(lines) {
  const isNear = (at) => lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(([kind]) => kind !== "same");
  if (!lines.some(([kind]) => kind !== "same")) return "Only its layout differs";
  const nodes = [];
  let skips = false;
  lines.forEach(([kind, line], at) => {
    if (!isNear(at)) {
      if (!skips) nodes.push("…\n");
      skips = true;
      return;
    }
    skips = false;
    if (kind === "same") nodes.push(`  ${line}\n`);
    else nodes.push(h(kind === "gone" ? "del" : "ins", {}, `${kind === "gone" ? "-" : "+"} ${line}\n`));
  });
  return nodes;
}
