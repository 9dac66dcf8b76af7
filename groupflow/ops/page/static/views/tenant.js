// One tenant: what it may, its groups in each state, its tasks that wait and run, what of it died.

import { get } from "../api.js";
import { badge, card, empty, h, link, replace, short, table } from "../dom.js";
import { ago, count } from "../format.js";
import { limit } from "./actions.js";
import { byHand } from "./by_hand.js";
import { columns as ofTasks } from "./tasks.js";
import { columns, left, tenants } from "./tenants.js";

const SOME = 20;

export function tenant(params, context) {
  if (!params.name) return tenants(params, context);
  const { name } = params;
  const asked = h("input", { name: "tenant", autocomplete: "off", required: true, value: name, "data-key": "tenant", "data-search": true });
  const groups = h("div", {});
  const tasks = h("div", {});
  const letters = h("div", {});
  const looked = h("span", { class: "muted" });
  const may = h("div", {});
  const element = [
    h("p", { class: "small" }, link("tenant", {}, "← Tenants")),
    h("div", { class: "title" }, h("h1", {}, `Tenant ${name}`), h("div", { class: "push" },
      h("button", { type: "button", "data-key": "limit", onclick: () => limit(context, { tenant: name }, set).then(refresh) }, "Limit"))),
    h("section", { class: "card" },
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("tenant", { name: asked.value }); } },
        h("label", { class: "grow" }, "Tenant", asked), h("button", { class: "primary" }, "Show"))),
    card("Limits", "of each application", may),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Groups"), looked), groups),
    h("div", { class: "columns top" },
      card("Tasks", h("span", {}, "running, then some that wait · ", link("tasks", { tenant: name }, "all of them")), tasks),
      card("Dead letters", link("dead", { tenant: name }, "all of them"), letters)),
  ];
  let set;

  async function refresh() {
    const [limits, own, dead, running, queued] = await Promise.all([
      get("limits"),
      get("tenants", { name }),
      get("dead", { tenant: name, limit: SOME }),
      get("tasks", { state: "running", tenant: name, limit: SOME }),
      get("tasks", { state: "queued", tenant: name, limit: SOME }),
    ]);
    set = limits.limits.find((row) => row.kind === "tenant" && row.name === name);
    replace(may, set && byHand(context, [set], refresh), own.tenants.length ? table("Tenants", columns(own), own.tenants)
      : empty("Nothing of it waits or runs", `It has no limit of its own${left(own)}.`));
    const rows = own.tenants.flatMap((row) => row.shown.map((group) => ({ ...group, app: row.app })));
    const many = own.tenants.reduce((sum, row) => sum + row.groups, 0);
    looked.textContent = `by the tenant of each one's next task: something waits in ${count(many)}; those that run first, then the longest${left(own)}`;
    replace(groups, rows.length ? table("Groups", [
      { label: "Group", kind: "name", cell: (row) => link("group", { key: row.group }, row.group, { "data-key": row.group }) },
      { label: "Application", kind: "name", cell: (row) => row.app },
      { label: "State", kind: "tight", cell: (row) => badge(row.state) },
      { label: "Waiting", kind: "number", cell: (row) => count(row.waiting) },
      { label: "Oldest task", kind: "number", cell: (row) => ago(row.oldest) },
    ], rows) : empty("No group of it", ""));
    const found = [...running.tasks.map((row) => ({ ...row, state: "running" })), ...queued.tasks.map((row) => ({ ...row, state: "queued" }))];
    replace(tasks, found.length ? table("Tasks", ofTasks().filter(({ label }) => ["Task", "State", "Type", "Age"].includes(label)), found) : empty("No task found", ""));
    replace(letters, dead.letters.length ? table("Dead letters", [
      { label: "Dead letter", kind: "name", cell: (row) => link("letter", { id: row.id, tenant: row.tenant }, short(row.id), { "data-key": `letter ${row.id}`, title: row.id }) },
      { label: "Reason", kind: "name", cell: (row) => row.reason.split("\n", 1)[0].slice(0, 140) },
      { label: "Died", kind: "number", cell: (row) => ago(row.died_at) },
    ], dead.letters) : empty("No dead letter found", ""));
  }
  return { element, every: 3000, refresh };
}
