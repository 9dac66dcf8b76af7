// What this daemon runs by, and where a message would go.

import { get, post } from "../api.js";
import { badge, card, empty, facts, h, link, replace, table } from "../dom.js";

export function configuration() {
  const rules = h("div", {});
  const handlers = h("div", {});
  const sections = h("div", { class: "columns" });
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
    sections,
  ];

  async function refresh() {
    const found = await get("configuration");
    const { groups, handlers: outside, ...rest } = found.settings;
    replace(rules, groups.length ? table("Rules", [
      { label: "Rule", kind: "name", cell: (row) => row.name },
      { label: "App", kind: "name", cell: (row) => row.app },
      { label: "Tenants", kind: "name", cell: (row) => row.tenants.join(", ") },
      { label: "Key", kind: "name", cell: (row) => h("code", {}, row.key) },
      { label: "On retry", kind: "tight", cell: (row) => row.on_retry },
      { label: "On dead", kind: "tight", cell: (row) => row.on_dead },
      { label: "Attempts", kind: "number", cell: (row) => row.max_attempts ?? rest.retry.max_attempts },
      { label: "Priority", kind: "number", cell: (row) => (row.priority ? `${row.priority} s` : "") },
    ], groups) : empty("No rule", "Every task is plain: all run in parallel."));
    const ways = [
      ...found.handlers.map((name) => ({ name, way: "Python" })),
      ...Object.entries(outside).map(([name, rule]) => ({ name, way: rule.exec ? `exec ${rule.exec.join(" ")}` : `http ${rule.http}` })),
    ];
    replace(handlers, ways.length ? table("Handlers", [
      { label: "Type", kind: "name", cell: (row) => row.name },
      { label: "Handler", kind: "name", cell: (row) => h("code", {}, row.way) },
    ], ways) : empty("No handler here", "This daemon only runs intake."));
    replace(sections, Object.entries(rest).map(([name, values]) => card(`[${name}]`, "", h(
      "dl", { class: "settings" }, Object.entries(values).map(([setting, value]) => [h("dt", {}, setting), h("dd", {}, shown(value))])))));
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

function shown(value) {
  if (value === null || value === "") return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
