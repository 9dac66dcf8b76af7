// Limits by hand: what each says, until when, by whom; changed and ended here.

import { h, link, table } from "../dom.js";
import { ahead, moment } from "../format.js";
import { endLimit, limit } from "./actions.js";

const targetOf = (row) => ({ [row.kind]: row.name });

// Where a group, a tenant or a type is shown.
const shown = (row) => (row.kind === "type" && row.name.endsWith("*") ? row.name : link(row.kind, { [row.kind === "group" ? "key" : "name"]: row.name }, row.name, { "data-key": `${row.kind} ${row.name}` }));

export function words(row) {
  const said = [];
  if (row.concurrency !== null) said.push(`${row.concurrency || "any number"} at once`);
  if (row.rate !== null) said.push(row.rate || "any rate");
  return said.join(", ");
}

export function byHand(context, rows, refresh) {
  const key = (row) => `${row.kind} ${row.name}`;
  return table("Limits by hand", [
    { label: "Kind", kind: "tight", cell: (row) => row.kind },
    { label: "Name", kind: "name", cell: shown },
    { label: "Limit", kind: "name", cell: words },
    { label: "Ends", kind: "number", cell: (row) => h("span", { title: moment(row.until) }, ahead(row.until)) },
    { label: "By", kind: "name", cell: (row) => row.by },
    { label: "", kind: "actions", cell: (row) => [
      h("button", { type: "button", "data-key": `change ${key(row)}`, "aria-label": `Change the limits of ${key(row)}`, onclick: () => limit(context, targetOf(row), row).then(refresh) }, "Change"),
      h("button", { type: "button", "data-key": `end ${key(row)}`, "aria-label": `End the limits of ${key(row)}`, onclick: () => endLimit(context, targetOf(row)).then(refresh) }, "End"),
    ] },
  ], rows);
}
