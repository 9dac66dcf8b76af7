// What is limited: how many tasks of a group, a tenant or a type run at once, and how often they start; by rule, by
// tenant, by type, and by hand.

import { get } from "../api.js";
import { card, empty, h, link, replace, table } from "../dom.js";
import { count, duration } from "../format.js";
import { limit } from "./actions.js";
import { byHand } from "./by_hand.js";

export function limits(_params, context) {
  const rules = h("div", {}), tenants = h("div", {}), types = h("div", {});
  const held = h("p", { class: "lead" });
  const set = h("div", {});
  const asked = h("input", { name: "type", autocomplete: "off", required: true, "data-key": "type", "data-search": true });
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Limits")),
    h("section", { class: "card" }, held),
    card("By hand", "in place of the configuration, for a while; set on a group's or a tenant's page, of types here", set),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Of groups"), h("span", { class: "muted" }, "by rule")), rules),
    card("Of tenants", "of each application; a tenant's own line overrides it", tenants),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Of types"), h("span", { class: "muted" }, "all tasks of a type together; the first pattern that matches holds")), types,
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); limit(context, { type: asked.value }).then(refresh); } },
        h("label", { class: "grow" }, "Type, or import.* for several", asked), h("button", {}, "Limit"))),
  ];
  const onOverview = ({ delayed }) => replace(held, "Delayed groups (a delay, a limit or a retry): ", link("groups", { state: "delayed" }, count(delayed), { "data-key": "delayed" }));

  async function refresh() {
    if (!context.latest) onOverview(await get("overview"));
    const [found, limited] = await Promise.all([get("configuration"), get("limits")]);
    replace(set, limited.limits.length ? byHand(context, limited.limits, refresh) : empty("None", "All is as configured."));
    const all = found.settings.groups;
    replace(rules, all.length ? table("Limits of groups", [
      { label: "Rule", kind: "name", cell: (row) => row.name },
      { label: "App", kind: "name", cell: (row) => row.app },
      { label: "Key", kind: "name", cell: (row) => h("code", {}, row.key) },
      { label: "Concurrency", kind: "number", cell: (row) => count(row.concurrency ?? 1) },
      { label: "Rate of starts", kind: "name", cell: (row) => row.rate || "no limit" },
      { label: "Tasks a claim", kind: "name", cell: together },
      { label: "Max queued", kind: "name", cell: (row) => (row.max_queued ? count(row.max_queued) : "no limit") },
      { label: "Debounce", kind: "name", cell: (row) => (row.debounce ? duration(row.debounce) : "none") },
    ], all) : empty("No rule", "Every task is plain: only the number of workers limits it."));
    const capped = Object.entries(found.settings.types).map(([pattern, own]) => ({ pattern, ...own }));
    replace(types, capped.length ? table("Limits of types", [
      { label: "Type", kind: "name", cell: (row) => row.pattern },
      { label: "Concurrency", kind: "number", cell: (row) => (row.concurrency ? count(row.concurrency) : "no limit") },
      { label: "Rate of starts", kind: "name", cell: (row) => row.rate || "no limit" },
    ], capped) : empty("No type has a limit", ""));
    const { named, ...every } = found.settings.tenants;
    replace(tenants, table("Limits of tenants", [
      { label: "Tenant", kind: "name", cell: (row) => (row.name === null ? "each" : link("tenant", { name: row.name }, row.name)) },
      { label: "Concurrency", kind: "number", cell: (row) => (row.concurrency ? count(row.concurrency) : "no limit") },
      { label: "Rate of starts", kind: "name", cell: (row) => row.rate || "no limit" },
      { label: "Weight", kind: "number", cell: (row) => count(row.weight) },
    ], [{ name: null, ...every }, ...Object.entries(named).map(([name, own]) => ({ name, ...every, ...said(own) }))]));
  }
  return { element, every: 5000, refresh, onOverview };
}

const said = (own) => Object.fromEntries(Object.entries(own).filter(([, value]) => value !== null));

function together(row) {
  if (row.run > 1) return `a run of ${count(row.run)}`;
  if (row.batch > 1) return `a batch of ${count(row.batch)}${row.batch_wait ? `, waited for ${duration(row.batch_wait)}` : ""}`;
  return "one";
}
