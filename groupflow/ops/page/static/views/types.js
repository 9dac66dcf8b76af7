// What became of attempts, type by type: how many and when, how long they took; and how busy the workers were.

import { get } from "../api.js";
import { bars } from "../chart.js";
import { empty, h, link, meter, replace, sorted, table } from "../dom.js";
import { about, count, duration, rate, time } from "../format.js";

const OTHER = "other"; // all types that are not counted by name
export const SPANS = { 1: "1 h", 6: "6 h", 24: "24 h" };
const KEYS = { type: (row) => row.type, done: (row) => row.done, failed: (row) => row.failed, dead: (row) => row.dead, p50: (row) => row.duration_p50 ?? -1, p95: (row) => row.duration_p95 ?? -1 };

export const spanOf = (params) => (Object.hasOwn(SPANS, params.hours) ? params.hours : "1");
export const spans = (view, params, hours) => h("nav", { class: "segments", "aria-label": "Time" }, Object.entries(SPANS).map(([span, label]) => link(view, { ...params, hours: span }, label, { "aria-current": span === hours ? "true" : undefined })));

export const each = ({ step }) => (step < 90 ? "each minute" : `each ${duration(step)}`);

// How a type's tasks ended, step by step of the time.
export function steps(found, row, shape) {
  const layers = [["green", row.done_steps], ["amber", row.failed_steps], ["red", row.dead_steps]];
  return bars(`${row.type}: ${count(row.done)} done, ${count(row.failed)} failed, ${count(row.dead)} dead, ${each(found)}`, layers.map(([tone, values]) => ({ tone, values })), {
    told: (place) => `${time(found.since + place * found.step)}: ${layers.map(([, values], n) => `${count(values[place])} ${["done", "failed", "dead"][n]}`).join(", ")}`, ...shape });
}

// How long attempts took, each bar a quarter longer than the one before; between bounds that several types share.
export function durations(row, [low, high], shape) {
  const counts = new Map(row.histogram.map(([bound, number]) => [place(bound), number]));
  const values = Array.from({ length: high - low + 1 }, (_, n) => counts.get(low + n) ?? 0);
  return bars(`${row.type}: p50 about ${duration(row.duration_p50)}, p95 about ${duration(row.duration_p95)}`, [{ tone: "blue", values }], {
    told: (n) => `up to ${duration(10 ** ((low + n) / 10))}: ${count(values[n])}`, ...shape });
}

const place = (bound) => Math.round(10 * Math.log10(bound));

export function bounds(rows) {
  const every = rows.flatMap((row) => row.histogram.map(([bound]) => place(bound)));
  return [Math.min(...every), Math.max(...every)];
}

export function types(params, context) {
  const hours = spanOf(params);
  const sorting = { by: params.sort ?? "", down: params.down === "1" };
  const list = h("div", {});
  const busy = h("div", { class: "lead" });
  const element = [
    h("div", { class: "title" }, h("h1", {}, "Types")),
    h("section", { class: "card" }, busy),
    h("section", { class: "card" },
      h("header", {}, h("h2", {}, "Attempts"), h("span", { class: "muted" }, "of a scan: its rows, and how long each page of them took")),
      spans("types", params, hours), list),
  ];
  const onsort = (name) => context.go("types", { hours, sort: name, down: sorting.by === name && sorting.down ? "" : "1" });

  async function refresh() {
    const found = await get("types", { hours });
    const share = found.utilisation;
    replace(busy, share === null ? "No daemon has told how busy its workers are." : `Workers were busy ${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of the last ${duration(found.hours * 3600)}.`, share !== null && meter(share));
    const between = bounds(found.types);
    replace(list, found.types.length ? table("Types", [
      { name: "type", label: "Type", kind: "name", sort: true, cell: (row) => (row.type === OTHER ? h("span", { class: "muted", title: "types without a handler, and those beyond the first 50" }, OTHER) : link("type", { name: row.type, hours }, row.type, { "data-key": row.type })) },
      { label: `Ended ${each(found)}`, kind: "bars", cell: (row) => steps(found, row) },
      { name: "done", label: "Done", kind: "number", sort: true, cell: (row) => count(row.done) },
      { label: "Rate", kind: "number", cell: (row) => rate(row.rate) },
      { name: "failed", label: "Retried", kind: "number", sort: true, cell: (row) => count(row.failed) },
      { name: "dead", label: "Dead", kind: "number", sort: true, cell: (row) => (row.dead && row.type !== OTHER ? link("dead", { type: row.type }, count(row.dead), { "data-key": `dead ${row.type}` }) : count(row.dead)) },
      { label: "Durations", kind: "bars", cell: (row) => row.histogram.length > 0 && durations(row, between) },
      { name: "p50", label: "p50", kind: "number", sort: true, cell: (row) => about(row.duration_p50) },
      { name: "p95", label: "p95", kind: "number", sort: true, cell: (row) => about(row.duration_p95) },
    ], sorted(found.types, KEYS[sorting.by], sorting.down), { sorting, onsort }) : empty("No attempt has ended", "in this time"));
  }
  return { element, every: 5000, refresh };
}
