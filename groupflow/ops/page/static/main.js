// The frame: which view is shown, what all of them hear, theme and access.

import { follow, get } from "./api.js";
import { address, h } from "./dom.js";
import { askToken, toast } from "./dialogs.js";
import { setNow } from "./format.js";
import { follow as followKeys } from "./keyboard.js";
import { configuration } from "./views/configuration.js";
import { daemon } from "./views/daemon.js";
import { dead } from "./views/dead.js";
import { group } from "./views/group.js";
import { groups } from "./views/groups.js";
import { limits } from "./views/limits.js";
import { letter } from "./views/letter.js";
import { operators } from "./views/operators.js";
import { overview } from "./views/overview.js";
import { partitions } from "./views/partitions.js";
import { pools } from "./views/pools.js";
import { scans } from "./views/scans.js";
import { schedules } from "./views/schedules.js";
import { task } from "./views/task.js";
import { tasks } from "./views/tasks.js";
import { tenant } from "./views/tenant.js";
import { type } from "./views/type.js";
import { types } from "./views/types.js";

const VIEWS = { overview, groups, group, tasks, task, tenant, types, scans, pools, dead, letter, schedules, limits, partitions, actions: operators, configuration, daemon, type };
const PARENT = { group: "groups", task: "tasks", letter: "dead", daemon: "overview", type: "types" };
const TITLES = { overview: "Overview", groups: "Groups", group: "Group", tasks: "Tasks", task: "Task", tenant: "Tenants", types: "Types", limits: "Limits", partitions: "Partitions", actions: "Actions", scans: "Scans", pools: "Pools", dead: "Dead letters", letter: "Dead letter", schedules: "Schedules", configuration: "Configuration", daemon: "Daemon", type: "Type" };
const ASK_AGAIN = 1000; // ms

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const live = document.getElementById("live");
const context = { access: { may_act: false, may_read: true, has_tokens: false }, latest: null, lease: 8, go, act };

let shown = null;
let busy = false;
let isConfigured = false; // whether the views know what is configured

function go(view, params) {
  location.hash = address(view, params);
}

// Asks for the token where it is missing; true where the person may act now.
async function act() {
  if (!context.access.may_act) await openAccess();
  return context.access.may_act;
}

function route() {
  const [path, query] = location.hash.replace(/^#\//, "").split("?", 2);
  const view = Object.hasOwn(VIEWS, path) ? path : "overview";
  if (path && path !== view) toast(`There is no view ${path}.`, true);
  const params = Object.fromEntries(new URLSearchParams(query ?? ""));
  for (const each of nav.querySelectorAll("a")) {
    const isHere = each.getAttribute("href") === `#/${PARENT[view] ?? view}`;
    if (isHere) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  scrollToHere();
  document.title = `${params.key ?? params.id ?? params.name ?? params.worker ?? TITLES[view]} · groupflow`;
  const isSame = shown?.name === view;
  shown = { name: view, changed: Date.now(), ...VIEWS[view](params, context) };
  main.replaceChildren(...(Array.isArray(shown.element) ? shown.element : [shown.element]));
  showAway();
  if (context.latest) shown.onOverview?.(context.latest);
  if (!isSame) window.scrollTo(0, 0);
  refresh();
}

// Brings the view's own place in the bar into sight, where the bar is too narrow for all.
function scrollToHere() {
  const here = nav.querySelector("[aria-current]");
  if (here) nav.scrollTo({ left: here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2 });
}

async function refresh() {
  const view = shown;
  if (!view.refresh || busy) return;
  busy = true;
  try {
    await view.refresh();
    main.removeAttribute("aria-busy");
    document.getElementById("page-trouble")?.remove();
  } catch (error) {
    if (view === shown) trouble(error);
  } finally {
    busy = false;
    view.refreshed = performance.now();
    if (view !== shown) refresh();
  }
}

function trouble(error) {
  document.getElementById("page-trouble")?.remove();
  const needsToken = error.status === 401;
  main.prepend(h("div", { class: "notice bad", id: "page-trouble", role: "alert" },
    h("span", {}, error.message),
    needsToken && h("button", { type: "button", class: "push", onclick: openAccess }, "Enter the token")));
}

// Names the partitions that don't answer: the views lack what lies in them.
function showAway() {
  const text = (context.latest?.away ?? []).map((one) => `Partition ${one.partition} is away: ${one.why}`).join("; ");
  const before = document.getElementById("page-away");
  if (text === (before?.textContent ?? "")) return;
  before?.remove();
  if (text) main.prepend(h("div", { class: "notice bad", id: "page-away", role: "alert" }, h("span", {}, text)));
}

function heard(kind, data) {
  if (kind === "trouble") {
    setLive("trouble", "Redis is away");
    live.title = data.detail;
    return;
  }
  setNow(data.at);
  setLive("live");
  context.latest = data;
  showAway();
  shown.onOverview?.(data);
  const due = performance.now() - (shown.refreshed ?? 0) >= (shown.every ?? Infinity);
  if (due && !document.hidden) refresh();
}

function setLive(state, text) {
  live.dataset.state = state;
  document.getElementById("live-text").textContent = state === "live" ? "Live" : (text ?? "No connection");
  live.title = state === "live" ? `by daemon ${context.access.daemon ?? ""}` : text ?? "";
}

async function openAccess() {
  context.access = await askToken(context.access);
  showAccess();
  learnConfiguration();
  route();
}

// Until the daemon has said who may act, nothing is made up: it is asked again.
async function learnAccess() {
  try {
    context.access = await get("access");
  } catch {
    setTimeout(learnAccess, ASK_AGAIN);
    return;
  }
  showAccess();
  learnConfiguration();
  if (context.access.may_act) route(); // with its buttons
}

// Once; who may not look learns it after signing in.
async function learnConfiguration() {
  if (isConfigured || !context.access.may_read) return;
  try {
    const { settings } = await get("configuration");
    context.lease = settings.workers.lease;
    document.getElementById("partitions").hidden = settings.redis.partitions < 2;
    isConfigured = true;
  } catch {
    // The views tell what is the matter.
  }
}

// A button is of use only once it is listened to, and this one once the daemon has said who may act.
function showAccess() {
  const button = document.getElementById("access");
  button.disabled = false;
  button.textContent = context.access.may_act ? "May act" : "Read-only";
  button.title = context.access.may_act ? "Actions are allowed by the token" : "Enter the token to act";
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function showTheme() {
  const button = document.getElementById("theme");
  button.disabled = false;
  button.textContent = isDark() ? "Light theme" : "Dark theme";
  button.title = `Switch to the ${isDark() ? "light" : "dark"} theme`;
}

document.getElementById("theme").addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("groupflow.theme", theme);
  } catch {
    // Storage is off: it holds until the page is left.
  }
  showTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
document.getElementById("access").addEventListener("click", openAccess);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
new ResizeObserver(scrollToHere).observe(nav);
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => document.hidden || refresh());

followKeys(go);
showTheme();
route();
await learnAccess();
follow(heard, setLive);
