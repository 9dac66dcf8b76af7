// What is limited: how many tasks of a group run at once, and how often they start; by rule.

import { get } from "../api.js";
import { empty, h, link, replace, table } from "../dom.js";
import { count } from "../format.js";

export function limits() {
  const rules = h("div", {});
  const held = h("p", { class: "lead" });
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Limits")),
    h("section", { class: "card" }, held),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Of groups"), h("span", { class: "muted" }, "by the rule that a group comes by")), rules),
  ];
  async function refresh() {
    const [found, delayed] = await Promise.all([get("configuration"), get("groups", { state: "delayed", limit: 1 })]);
    replace(held, "Groups that wait for their time, a rate or a retry: ", link("groups", { state: "delayed" }, count(delayed.total), { "data-key": "delayed" }));
    const all = found.settings.groups;
    replace(rules, all.length ? table("Limits of groups", [
      { label: "Rule", kind: "name", cell: (row) => row.name },
      { label: "App", kind: "name", cell: (row) => row.app },
      { label: "Key", kind: "name", cell: (row) => h("code", {}, row.key) },
      { label: "At once", kind: "number", cell: (row) => count(row.concurrency ?? 1) },
      { label: "Starts", kind: "name", cell: (row) => row.rate || "as they come" },
    ], all) : empty("No rule", "Every task is plain, and the workers are the only limit."));
  }
  return { element, every: 5000, refresh };
}
