// What handlers did, type by type: rates, failures, durations; and how busy the workers were.

import { get } from "../api.js";
import { empty, h, link, replace, table } from "../dom.js";
import { count, duration, rate } from "../format.js";

const SPANS = { 1: "1 h", 6: "6 h", 24: "24 h" };
const KEYS = { type: (row) => row.type, done: (row) => row.done, failed: (row) => row.failed, dead: (row) => row.dead, p50: (row) => row.duration_p50 ?? -1, p95: (row) => row.duration_p95 ?? -1 };

export function types(params, context) {
  const hours = Object.hasOwn(SPANS, params.hours) ? params.hours : "1";
  const sorting = { by: params.sort ?? "", down: params.down === "1" };
  const list = h("div", {});
  const busy = h("div", { class: "lead" });
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Types")),
    h("section", { class: "card" }, busy),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "What handlers did"), h("span", { class: "muted" }, "counted every 10 s")),
      h("nav", { class: "segments", "aria-label": "Time" }, Object.entries(SPANS).map(([span, label]) => link("types", { ...params, hours: span }, label, { "aria-current": span === hours ? "true" : undefined }))),
      list),
  ];
  const onsort = (name) => context.go("types", { hours, sort: name, down: sorting.by === name && sorting.down ? "" : "1" });

  function sorted(rows) {
    const key = KEYS[sorting.by];
    if (!key) return rows;
    const sign = sorting.down ? -1 : 1;
    return [...rows].sort((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : 0));
  }

  async function refresh() {
    const found = await get("types", { hours });
    const share = found.utilisation;
    const bar = h("span", {});
    bar.style.width = `${Math.round((share ?? 0) * 100)}%`;
    replace(busy, share === null ? "No daemon has told how busy its workers are." : `Workers were busy ${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of the last ${duration(found.hours * 3600)}.`, share !== null && h("div", { class: "meter", "aria-hidden": "true" }, bar));
    replace(list, found.types.length ? table("Types", [
      { name: "type", label: "Type", kind: "name", sort: true, cell: (row) => link("tasks", { type: row.type }, row.type, { "data-key": row.type }) },
      { name: "done", label: "Done", kind: "number", sort: true, cell: (row) => count(row.done) },
      { label: "Rate", kind: "number", cell: (row) => rate(row.rate) },
      { name: "failed", label: "Failed, tried again", kind: "number", sort: true, cell: (row) => count(row.failed) },
      { name: "dead", label: "Dead", kind: "number", sort: true, cell: (row) => (row.dead ? link("dead", { type: row.type }, count(row.dead), { "data-key": `dead ${row.type}` }) : count(0)) },
      { name: "p50", label: "Half within", kind: "number", sort: true, cell: (row) => duration(row.duration_p50) },
      { name: "p95", label: "95 % within", kind: "number", sort: true, cell: (row) => duration(row.duration_p95) },
    ], sorted(found.types), { sorting, onsort }) : empty("Nothing was handled", "in this time"));
  }
  return { element, every: 5000, refresh };
}
