// Dead letters: filter, choose, redrive or drop.

import { get } from "../api.js";
import { choosing, empty, h, keyOfTask, link, replace, short, table } from "../dom.js";
import { ago, count, moment, seconds } from "../format.js";
import { drop, dropAll, redrive, redriveAll } from "./actions.js";

const FILTERS = { reason: "Reason contains", cause: "Cause", type: "Type", group: "Group", tenant: "Tenant", since: "Died within (30s, 10m, 2h, 1d)" };
const SPAN = "\\s*[0-9]+([.][0-9]+)?\\s*[smhd]\\s*";

export function dead(params, context) {
  const at = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, params[name] ?? ""]));
  const asked = { ...at, since: seconds(at.since) || undefined }; // an empty text is no span
  const passed = params.passed ?? "0"; // how many, or where each of several partitions has come to
  const isFirst = passed === "0";
  const choice = choosing(keyOfTask, (number) => showChosen(number));
  const { chosen } = choice;
  const inputs = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, h("input", { name, value: at[name], autocomplete: "off", pattern: name === "since" && SPAN, title: name === "since" && "30s, 10m, 2h or 1d" })]));
  const list = h("div", {});
  const foot = h("footer", {});
  const count_ = h("span", { class: "muted", role: "status" });
  const redriveButton = h("button", { type: "button", class: "primary", onclick: () => run(redrive) }, "Redrive");
  const dropButton = h("button", { type: "button", class: "danger", onclick: () => run(drop) }, "Drop");
  let rows = [];
  const reasons = h("section", { class: "card", hidden: true });
  const allButton = h("button", { type: "button", "data-key": "all that match", onclick: () => runAll(redriveAll) }, "Redrive all that match");
  const dropAllButton = h("button", { type: "button", class: "danger", "data-key": "drop all", onclick: () => runAll(dropAll) }, "Drop all that match");
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Dead letters")),
    reasons,
    h("section", { class: "card" },
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("dead", Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]))); } },
        Object.entries(FILTERS).filter(([name]) => name !== "cause" || at.cause).map(([name, label]) => h("label", { class: "grow" }, label, inputs[name])),
        h("button", {}, "Filter"),
        Object.values(at).some(Boolean) && link("dead", {}, "Clear", { class: "button" })),
      h("div", { class: "form row" }, redriveButton, dropButton, count_, h("span", { class: "push" }), allButton, dropAllButton),
      list, foot),
  ];

  function showChosen(number) {
    allButton.hidden = dropAllButton.hidden = !rows.length;
    redriveButton.disabled = dropButton.disabled = !number;
    count_.textContent = number ? `${count(number)} chosen; the list is frozen meanwhile` : rows.length ? "Choose some" : "";
  }

  async function run(verb) {
    // The oldest first: where a group has room for some, those that came first get it.
    if (await verb(context, [...chosen.values()].sort((a, b) => a.died_at - b.died_at))) {
      chosen.clear();
      await refresh();
    }
  }

  async function runAll(verb, more = {}, what = undefined) {
    if (await verb(context, { ...asked, ...more }, what)) {
      chosen.clear();
      await refresh();
    }
  }

  function showReasons(found) {
    const many = found.is_whole ? `${count(found.matching)} ` : "";
    allButton.textContent = `Redrive all ${many}that match`;
    dropAllButton.textContent = `Drop all ${many}that match`;
    const left = found.causes - found.reasons.length;
    const button = (row, verb, text, tone) => {
      const what = `of ${row.type || "no type"}: ${row.reason}`;
      return h("button", { type: "button", class: tone, "data-key": `${text} ${row.cause}`, "aria-label": `${text} all ${what}`, onclick: () => runAll(verb, { cause: row.cause }, what) }, text);
    };
    reasons.hidden = !found.reasons.length;
    replace(reasons,
      h("header", {}, h("h2", {}, "Causes"), h("span", { class: "muted" }, `${found.is_whole ? "all that match" : `of the latest ${count(found.looked_at)}; groupflow dead causes counts all`}${left ? `; ${count(left)} more causes` : ""}${found.with_words ? "" : "; their words want the token"}`)),
      table("Reasons", [
        { label: "Dead letters", kind: "number", cell: (row) => count(row.count) },
        { label: "Type", kind: "name", cell: (row) => row.type || h("span", { class: "muted" }, "none") },
        { label: "Reason", kind: "name", cell: (row) => link("dead", { ...at, cause: row.cause }, row.reason || "none", { "data-key": `cause ${row.cause}` }) },
        { label: "Latest", kind: "name", cell: (row) => link("letter", { id: row.example, tenant: row.tenant }, short(row.example), { "data-key": `example ${row.example}`, title: row.example }) },
        { label: "Died", kind: "number", cell: (row) => h("span", { title: moment(row.last_at) }, ago(row.last_at)) },
        { label: "", kind: "actions", cell: (row) => [button(row, redriveAll, "Redrive"), button(row, dropAll, "Drop", "danger")] },
      ], found.reasons));
  }

  function show(page) {
    rows = page.letters;
    const columns = [
      { label: "Dead letter", kind: "name", cell: (row) => link("letter", { id: row.id, tenant: row.tenant }, short(row.id), { "data-key": `open ${keyOfTask(row)}`, title: row.id }) },
      { label: "Type", kind: "name", cell: (row) => row.type || h("span", { class: "muted" }, "none") },
      { label: "Group", kind: "name", cell: (row) => (row.group ? link("group", { key: row.group }, row.group) : h("span", { class: "muted" }, "plain")) },
      { label: "Tenant", kind: "name", cell: (row) => row.tenant && link("tenant", { name: row.tenant }, row.tenant, { "data-key": `tenant ${keyOfTask(row)}` }) },
      { label: "Reason", kind: "name", cell: (row) => cut(row.reason) },
      { label: "Attempts", kind: "number", cell: (row) => count(row.attempts) },
      { label: "Died", kind: "number", cell: (row) => h("span", { title: moment(row.died_at) }, ago(row.died_at)) },
    ];
    replace(list, rows.length ? choice.table("Dead letters", columns, rows)
      : Object.values(at).some(Boolean) ? empty("None matches", page.next === null ? "" : "There are more to search.") : empty("No dead letters", "No task has failed for good."));
    replace(foot,
      h("span", {}, `${count(rows.length)} shown, the latest first; searched ${count(page.looked_at)}${isFirst || Number.isNaN(Number(passed)) ? "" : ` behind ${count(Number(passed))}`}`),
      h("span", { class: "push" }),
      !isFirst && link("dead", at, "First page", { class: "button" }),
      page.next !== null && link("dead", { ...at, passed: page.next }, "Next page", { class: "button" }));
    if (!rows.length) showChosen(0);
  }

  async function refresh() {
    const [page, found] = await Promise.all([get("dead", { ...asked, passed }), isFirst ? get("dead/reasons", asked) : null]);
    if (chosen.size) return; // or what is about to be chosen would move away
    show(page);
    if (found) showReasons(found);
  }

  showChosen(0);
  return { element, every: 2500, refresh };
}

function cut(text) {
  const first = text.split("\n", 1)[0];
  return first.length > 140 || first.length < text.length ? `${first.slice(0, 140)} …` : first;
}
