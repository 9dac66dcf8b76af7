// The partitions of the namespace: what lies in each, and which don't answer.

import { get } from "../api.js";
import { badge, h, replace, table } from "../dom.js";
import { count } from "../format.js";

export function partitions() {
  const list = h("div", {});
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Partitions")),
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "All partitions"), h("span", { class: "muted" }, "a group stays in one")), list),
  ];
  async function refresh() {
    const found = await get("partitions");
    const number = (name) => (row) => (row.away ? "–" : count(row[name]));
    replace(list, table("Partitions", [
      { label: "Partition", kind: "number", cell: (row) => row.partition },
      { label: "State", kind: "tight", cell: (row) => (row.away ? h("span", { class: "badge", "data-state": "dead" }, "away") : badge("ok")) },
      { label: "Queued", kind: "number", cell: number("queued") },
      { label: "Running", kind: "number", cell: number("running") },
      { label: "Ready groups", kind: "number", cell: number("ready") },
      { label: "Delayed groups", kind: "number", cell: number("delayed") },
      { label: "Parked groups", kind: "number", cell: number("parked") },
      { label: "Dead letters", kind: "number", cell: number("dead") },
      { label: "Done", kind: "number", cell: number("done_total") },
      { label: "Error", kind: "name", cell: (row) => row.away },
    ], found));
  }
  return { element, every: 2000, refresh };
}
