// Groups of a state, page by page, with a filter that looks at so many and says how many.

import { get } from "../api.js";
import { address, badge, empty, h, link, replace, short, sorted, table } from "../dom.js";
import { ago, ahead, count } from "../format.js";
import { pause, resume } from "./actions.js";

const STATES = { all: "All", ready: "Ready", running: "Running", delayed: "Delayed", parked: "Parked", paused: "Paused", drained: "Drained" };
const LISTED = ["running", "parked", "paused", "delayed", "ready"]; // what All shows some of, in that order
const SOME = 20; // of each
const LASTING = 2; // looks in which groups that no list has are seen
const SHOWN = 50; // drained ones
const SEEKS = 10000; // ms between two looks for drained groups, which may have to read much
const IN = { ready: "ready", running: "running_grouped", delayed: "delayed", parked: "parked", paused: "paused" };
const ORDER = { all: "some of each state", ready: "the next to run first", running: "by daemon", delayed: "next due first", parked: "in no order", paused: "in no order", drained: "the last one first, among the last 10,000 ended tasks of each partition" };
const KEYS = { group: (row) => row.group, waiting: (row) => row.waiting, came: (row) => row.enqueued_at ?? Infinity, tenant: (row) => row.tenant ?? "", type: (row) => row.type ?? "" };

export function groups(params, context) {
  const state = Object.hasOwn(STATES, params.state) ? params.state : "all";
  const at = { state, text: params.text ?? "", tenant: params.tenant ?? "", cursor: params.cursor ?? "0" };
  const sorting = { by: params.sort ?? "", down: params.down === "1" };
  const here = (more) => ({ ...at, cursor: at.cursor === "0" ? "" : at.cursor, sort: sorting.by, down: sorting.down ? "1" : "", ...more });

  const exact = h("input", { name: "key", placeholder: "contact:42", autocomplete: "off", required: true, "data-key": "exact", "data-search": true });
  const text = h("input", { name: "text", value: at.text, autocomplete: "off" });
  const tenant = h("input", { name: "tenant", value: at.tenant, autocomplete: "off" });
  const segments = h("nav", { class: "segments", "aria-label": "State" });
  const list = h("div", {});
  const foot = h("footer", {});

  function showSegments(o) {
    replace(segments, Object.entries(STATES).map(([name, label]) => link(
      "groups", { ...here({ state: name, cursor: "" }) }, o && IN[name] ? `${label} ${count(o[IN[name]])}` : label,
      { "aria-current": name === state ? "true" : undefined, "data-key": name })));
  }

  const element = [
    h("div", { class: "title" }, h("h1", {}, "Groups")),
    h("section", { class: "card" },
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("group", { key: exact.value }); } },
        h("label", { class: "grow" }, "Open a group by its exact key", exact), h("button", { class: "primary" }, "Open"))),
    h("section", { class: "card" },
      h("form", { class: "form", onsubmit: (event) => { event.preventDefault(); context.go("groups", here({ text: text.value, tenant: tenant.value, cursor: "" })); } },
        h("label", { class: "grow" }, "Name contains", text), h("label", { class: "grow" }, "Tenant", tenant),
        h("button", {}, "Filter"),
        (at.text || at.tenant) && link("groups", { state }, "Clear", { class: "button" })),
      segments, list, foot),
  ];
  showSegments(context.latest);

  function time(row) {
    if (row.state === "delayed") return ahead(row.until);
    return row.since ? ago(row.since) : "";
  }

  function onsort(name) {
    const down = sorting.by === name ? !sorting.down : name === "waiting";
    context.go("groups", here({ sort: name, down: down ? "1" : "" }));
  }

  function columns() {
    const when = { all: "Since, or due", running: "Runs since", delayed: "Due", parked: "Parked", paused: "Paused", drained: "Drained" }[state];
    const by = { all: "Held by", running: "Worker", parked: "Dead letter", paused: "Paused by" }[state];
    return [
      { name: "group", label: "Group", kind: "name", sort: true, cell: (row) => link("group", { key: row.group }, row.group, { "data-key": row.group }) },
      { label: "State", kind: "tight", cell: (row) => [badge(row.state), row.state !== "paused" && paused.has(row.group) && badge("paused")] },
      { name: "waiting", label: "Waiting", kind: "number", sort: true, cell: (row) => count(row.waiting) },
      { name: "type", label: state === "running" ? "Task" : "Head", kind: "name", sort: true, cell: (row) => (row.head ? h("span", {}, link("task", { id: row.head }, row.type || short(row.head), { title: row.head })) : row.type) },
      { name: "tenant", label: "Tenant", kind: "name", sort: true, cell: (row) => row.tenant && link("tenant", { name: row.tenant }, row.tenant) },
      { name: "came", label: "Enqueued", kind: "number", sort: true, cell: (row) => row.enqueued_at && ago(row.enqueued_at) },
      when && { label: when, kind: "number", cell: time },
      by && { label: by, kind: "name", cell: (row) => (row.state === "parked" ? link("letter", { id: row.by }, short(row.by), { title: row.by }) : row.by) },
      context.access.may_act && { label: "", kind: "actions", cell: (row) => (paused.has(row.group)
        ? h("button", { type: "button", class: "small", "aria-label": `Resume ${row.group}`, onclick: () => resume(context, row.group).then(() => refresh()) }, "Resume")
        : h("button", { type: "button", class: "small", "aria-label": `Pause ${row.group}`, onclick: () => pause(context, row.group).then(() => refresh()) }, "Pause")) },
    ].filter(Boolean);
  }

  let paused = new Set();
  let seeks = -Infinity;
  let drained = null;

  async function seekDrained(limit) {
    if (performance.now() - seeks >= SEEKS) {
      drained = await get("groups", { state: "drained", text: at.text, tenant: at.tenant, limit });
      seeks = performance.now();
    }
    return drained;
  }

  async function someOfEach() {
    const pages = await Promise.all(LISTED.map((each) => get("groups", { ...at, state: each, cursor: "0", limit: SOME })));
    const over = at.text && !at.tenant ? (await seekDrained(SOME)).groups : [];
    const sum = (pick) => pages.reduce((all, page) => all + pick(page), 0);
    const once = new Map(); // a group that runs or is parked may be paused too
    for (const row of pages.flatMap((page) => page.groups.slice(0, SOME))) if (!once.has(row.group)) once.set(row.group, row);
    return { groups: [...once.values(), ...over], total: sum((page) => page.total), looked_at: sum((page) => page.looked_at), next: null };
  }

  async function refresh() {
    const [page, held] = await Promise.all([
      state === "all" ? someOfEach() : state === "drained" ? seekDrained(SHOWN) : get("groups", at),
      context.latest?.paused ? get("groups", { state: "paused", limit: 500 }) : { groups: [] },
    ]);
    paused = new Set(held.groups.map((row) => row.group)); // what runs or is parked may be, too
    const filtered = at.text || at.tenant;
    const none = filtered
      ? empty("No group found", page.next ? "There are more to search." : "No group in this state matches.")
      : empty(state === "all" ? "No group has a task" : `No group is ${state}`, state === "ready" ? "Every group with tasks runs, or is delayed, parked or paused." : "");
    replace(list, page.groups.length ? table(`${STATES[state]} groups`, columns(), sorted(page.groups, KEYS[sorting.by], sorting.down), { sorting, onsort }) : none);
    replace(foot,
      h("span", {}, words(page, filtered)),
      h("span", { class: "push" }),
      at.cursor !== "0" && h("a", { class: "button", href: address("groups", here({ cursor: "" })) }, "First page"),
      page.next && h("a", { class: "button", href: address("groups", here({ cursor: page.next })), "data-key": "next" }, filtered ? "Search further" : "Next page"));
  }

  function words(page, filtered) {
    const shown = count(page.groups.length);
    const kind = state === "all" ? "groups" : `${state} groups`;
    const order = `${kind}, ${sorting.by ? "sorted within this page" : ORDER[state]}`;
    const more = state === "drained" && page.total > page.groups.length ? "; there are more" : "";
    if (!filtered) return state === "drained" ? `${shown} ${order}${more}` : [`${shown} of ${count(page.total)} ${order}`, waitingFor(page.total)];
    if (state === "drained") return `${shown} found among the last ${count(page.looked_at)} ended tasks${more}`;
    const from = state in { ready: 1, delayed: 1, running: 1 } && !Number.isNaN(Number(at.cursor)) ? ` from place ${count(Number(at.cursor) + 1)} on,` : "";
    return `${shown} found; searched ${count(page.looked_at)}${from} of ${count(page.total)} ${kind}${state === "all" ? ", and the last tasks that ended" : ""}`;
  }

  // Of those that the tabs count, the ones behind the first of their tenant or type: no list has them.
  const differences = [];
  function waitingFor(listed) {
    const counted = (state === "all" ? LISTED : [state]).reduce((sum, each) => sum + (context.latest?.[IN[each]] ?? 0), 0);
    differences.push(counted - listed); // of moments that are not quite the same: what comes and goes is none
    if (differences.length > LASTING) differences.shift();
    const more = Math.min(...differences);
    return differences.length === LASTING && more > 0 && ["; ", count(more), more === 1 ? " more waits" : " more wait", " behind these for their ", link("tenant", {}, "tenants", { "data-key": "tenants" }), " or the ", link("limits", {}, "limits", { "data-key": "limits" }), " of their types"];
  }

  return { element, every: 2000, refresh, onOverview: showSegments };
}
