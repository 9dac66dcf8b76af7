// What this daemon runs by, and where a message would go.

import { get, post } from "../api.js";
import { card, empty, facts, h, link, replace, table } from "../dom.js";
import { count } from "../format.js";

const MOST = 500; // rows of a table

export function configuration() {
  const rules = h("div", {});
  const handlers = h("div", {});
  const sections = h("div", { class: "columns" });
  const tables = h("div", { class: "columns single" });
  const answer = h("div", { "aria-live": "polite" });
  const type = h("input", { name: "type", autocomplete: "off" });
  const headers = h("input", { name: "headers", autocomplete: "off", placeholder: "x-entity=contact, x-delay=500" });
  const body = h("textarea", { name: "body", rows: 6, spellcheck: "false", required: true, placeholder: '{"app_name": "crm", "tenant_id": 42, "type": "import.contacts"}' });

  async function dryRun(event) {
    event.preventDefault();
    try {
      const way = await post("route", { body: body.value, type: type.value || null, headers: pairs(headers.value) });
      showWay(answer, way);
    } catch (error) {
      replace(answer, h("p", { class: "lead" }, error.message));
    }
  }

  const element = [
    h("div", { class: "title" }, h("h1", {}, "Configuration")),
    card("Rules", "the first match wins; no match is plain", rules),
    h("div", { class: "columns" },
      h("section", { class: "card" },
        h("header", {}, h("h2", {}, "Dry run"), h("span", { class: "muted" }, "where would this message go? Nothing is sent.")),
        h("form", { class: "form", onsubmit: dryRun },
          h("label", { class: "grow" }, "AMQP type, if set", type),
          h("label", { class: "grow" }, "AMQP headers", headers),
          h("label", { class: "grow wide" }, "Body", body),
          h("button", { class: "primary" }, "Route it")),
        answer),
      card("Handlers", "", handlers)),
    tables,
    sections,
  ];

  async function refresh() {
    const found = await get("configuration");
    const { groups, handlers: outside, ...rest } = found.settings;
    replace(rules, groups.length ? tableOf("Rules", groups) : empty("No rule", "Every task is plain: all run in parallel."));
    const ways = [
      ...found.handlers.map((name) => ({ type: name, handler: "Python" })),
      ...Object.entries(outside).map(([name, { exec, http, ...rule }]) => ({ type: name, handler: exec ? `exec ${exec.join(" ")}` : `http ${http}`, ...rule })),
    ];
    replace(handlers, ways.length ? tableOf("Handlers", ways) : empty("No handler here", "This daemon only runs intake."));
    const all = Object.entries(rest);
    replace(sections, all.filter(([, values]) => !isTable(values)).map(([name, values]) => sectionOf(name, values)));
    replace(tables, all.filter(([, values]) => isTable(values)).map(([name, values]) => (rowsOf(values).length > 0 && card(Array.isArray(values) ? `[[${name}]]` : `[${name}]`, "", tableOf(name, rowsOf(values))))));
  }

  return { element, refresh };
}

function showWay(answer, way) {
  const isDead = way.queue === "dead letter";
  const state = isDead ? "dead" : way.queue === "grouped" ? "ready" : "queued";
  answer.dataset.state = state;
  replace(answer,
    h("p", { class: "lead" }, isDead ? `A dead letter: ${way.reason}` : way.group ? ["Group ", link("group", { key: way.group }, way.group), ` by rule ${way.rule}`] : "Plain: it runs in parallel with everything"),
    !isDead && facts([
      ["Queue", way.queue], ["Type", way.type], ["App", way.app], ["Tenant", way.tenant],
      ["Handler", way.handler ?? "none in this configuration"],
      ["Priority", way.priority ? `${way.priority} s` : null], ["Delay", way.delay ? `${way.delay} s` : null],
      ["Max queued in its group", way.max_queued],
    ]));
}

function pairs(text) {
  const found = {};
  for (const pair of text.split(",")) {
    const [name, ...value] = pair.split("=");
    if (name.trim() && value.length) found[name.trim()] = value.join("=").trim();
  }
  return found;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTable = (value) => (Array.isArray(value) ? value : isObject(value) ? Object.values(value) : [null]).every(isObject);
const rowsOf = (value) => (Array.isArray(value) ? value : Object.entries(value).map(([name, row]) => ({ name, ...row })));
const isEmpty = (value) => value === null || value === "" || value === false || value === 0 || (typeof value === "object" && Object.keys(value).length === 0);

// What a section says: its settings, and below them a table of each that has many.
function sectionOf(name, values) {
  const own = Object.entries(values).filter(([, value]) => !isObject(value));
  const more = Object.entries(values).filter(([, value]) => isObject(value) && Object.keys(value).length);
  return card(`[${name}]`, "",
    h("dl", { class: "settings" }, own.map(([setting, value]) => [h("dt", {}, setting), h("dd", {}, shown(value))])),
    more.map(([setting, value]) => tableOf(`${name}.${setting}`, rowsOf(value))));
}

// Settings that no row has stay out: all have their defaults.
function tableOf(caption, rows) {
  const names = [...new Set(rows.flatMap(Object.keys))].filter((name) => rows.some((row) => !isEmpty(row[name])));
  const columns = names.map((name) => ({ label: name, kind: "setting", cell: (row) => shown(row[name]) }));
  return [table(caption, columns, rows.slice(0, MOST), { scrolls: true }), rows.length > MOST && h("footer", {}, `${count(MOST)} of ${count(rows.length)}`)];
}

function shown(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(shown).join(", ") || "–";
  if (isObject(value)) return Object.entries(value).map(([name, each]) => `${name} = ${shown(each)}`).join(", ") || "–";
  return String(value);
}
