// Tenants with a limit, or something that waits or runs: how much of each, what it may; and the limits by hand.

import { get } from "../api.js";
import { badge, empty, h, link, replace, table } from "../dom.js";
import { ago, count, moment, time } from "../format.js";
import { limit } from "./actions.js";
import { byHand } from "./by_hand.js";

export function tenants(params, context) {
  const list = h("div", {});
  const foot = h("footer", {});
  const limits = h("div", {});
  const looked = h("span", { class: "muted" });
  const asked = h("input", { name: "tenant", autocomplete: "off", required: true, "data-key": "tenant", "data-search": true });
  const name = () => asked.value;
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Tenants")),
    h("section", { class: "card" },
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("tenant", { name: name() }); } },
        h("label", { class: "grow" }, "Tenant", asked),
        h("button", { class: "primary" }, "Show"),
        h("button", { type: "button", "data-key": "limit", onclick: () => (asked.reportValidity() ? limit(context, { tenant: name() }).then(refresh) : undefined) }, "Limit"))),
    limits,
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "With tasks or a limit of their own"), looked), list, foot),
  ];
  async function refresh() {
    const [page, set] = await Promise.all([get("tenants", { cursor: params.cursor ?? "0" }), get("limits")]);
    replace(limits, set.limits.length > 0 && h("section", { class: "card" }, h("header", {}, h("h2", {}, "By hand"), h("span", { class: "muted" }, "in place of the configuration, for a while")), byHand(context, set.limits, refresh)));
    looked.textContent = `${count(page.total)}, at their limits first, then those of which most waits${left(page)}`;
    replace(list, page.tenants.length ? table("Tenants", columns(page), page.tenants)
      : empty("No tenants", "None has a limit of its own, or something that waits or runs."));
    foot.hidden = !(params.cursor || page.next);
    replace(foot,
      h("span", { class: "push" }),
      params.cursor && link("tenant", {}, "First page", { class: "button" }),
      page.next && link("tenant", { cursor: page.next }, "Next page", { class: "button" }));
  }
  return { element, every: 3000, refresh };
}

// What was not looked at.
export const left = (page) => (page.is_whole ? "" : `; of the first ${count(page.looked_at)} that wait or run: there is more`);

export const columns = (page) => [
  { label: "Tenant", kind: "name", cell: (row) => link("tenant", { name: row.name }, row.name || "(none)", { "data-key": `${row.scope} ${row.name}`, title: row.scope ? `of application and tenant ${row.scope}` : "" }) },
  { label: "Application", kind: "name", cell: (row) => row.app || (row.scope && h("span", { class: "muted", title: `of application and tenant ${row.scope}` }, row.app === "" ? "none" : "unknown")) },
  { label: "Waiting", kind: "number", cell: (row) => `${count(row.waiting)}${page.is_whole ? "" : " or more"}` },
  { label: "Groups", kind: "number", cell: (row) => count(row.groups) },
  { label: "Plain", kind: "number", cell: (row) => count(row.plain) },
  { label: "Oldest task", kind: "number", cell: (row) => row.oldest && h("span", { title: moment(row.oldest) }, ago(row.oldest)) },
  { label: "Running", kind: "number", cell: (row) => `${count(row.running)}${row.concurrency ? ` of ${count(row.concurrency)}` : ""}` },
  { label: "Rate of starts", kind: "name", cell: (row) => row.rate || "no limit" },
  { label: "Held by a limit", kind: "name", cell: held },
  { label: "By hand", kind: "number", cell: (row) => row.by_hand_until && h("span", { title: moment(row.by_hand_until) }, `until ${time(row.by_hand_until)}`) },
];

function held(row) {
  const why = { concurrency: "at its concurrency", rate: "over its rate", closed: "held back by a handler" }[row.limited_by];
  if (!why) return "no";
  return [badge("delayed"), ` ${why}`, row.until && h("span", { title: moment(row.until) }, `, until ${time(row.until)}`)];
}
