// What is asked of the person: the token, and whether an action is meant. And what is told.

import { get, name, setName, setToken, token } from "./api.js";
import { h } from "./dom.js";
import { seconds } from "./format.js";

const SIGNS = /^[\x21-\x7e]+$/; // of a token: a header can't have every other

export function toast(text, bad = false) {
  const element = h("div", { class: bad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), bad ? 9000 : 5000);
}

function open(content) {
  const dialog = h("dialog", {}, content);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

// Asks before something is done; true where the answer is yes.
export function confirmed(title, text, yes, danger = false) {
  return new Promise((resolve) => {
    const dialog = open(h(
      "form", { method: "dialog" },
      h("h2", { id: "ask" }, title),
      h("p", { class: "wrap" }, text),
      h("div", { class: "ends" },
        h("button", { value: "no" }, "Cancel"),
        h("button", { value: "yes", class: danger ? "danger" : "primary" }, yes)),
    ));
    dialog.setAttribute("aria-labelledby", "ask");
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
  });
}

// Asks for the token; resolves with what it allows once the dialog is closed.
export function askToken(access) {
  return new Promise((resolve) => {
    const secret = h("input", { type: "password", name: "token", autocomplete: "off", value: token(), required: true });
    const who = h("input", { name: "who", autocomplete: "off", maxlength: 64, value: name() });
    const trouble = h("p", { class: "wrap", role: "alert" });
    let allowed = access;
    const dialog = open(h(
      "form",
      {
        // Its one submit button is the one that signs in, so that Enter does the same.
        onsubmit: async (event) => {
          event.preventDefault();
          if (!access.has_tokens) return;
          const given = secret.value.trim();
          setToken(SIGNS.test(given) ? given : "");
          setName(who.value.trim());
          allowed = await get("access").catch(() => access);
          if (allowed.knows_token) {
            dialog.close();
            if (!allowed.may_act) toast("With this token you may not act.");
          } else {
            setToken("");
            trouble.textContent = "This is not the token of this daemon.";
          }
        },
      },
      h("h2", { id: "ask" }, "Act on this cluster"),
      h("p", { class: "muted" }, access.has_tokens
        ? "Bodies, and all that acts, need a token with the right to it. It is kept for this tab alone."
        : "This daemon has no http.token, so it only shows. Set one to allow actions."),
      access.has_tokens && h("label", {}, "Token", secret),
      access.has_tokens && h("label", {}, "Your name, for the log", who),
      trouble,
      h("div", { class: "ends" },
        token() && h("button", { type: "button", onclick: () => { setToken(""); dialog.close(); } }, "Forget the token"),
        h("button", { type: "button", onclick: () => dialog.close() }, "Close"),
        access.has_tokens && h("button", { type: "submit", class: "primary" }, "Use it")),
    ));
    dialog.setAttribute("aria-labelledby", "ask");
    dialog.addEventListener("close", async () => resolve(await get("access").catch(() => allowed)));
  });
}

// Asks for limits and saves them by `save`; true where that went well. What is left empty stays as configured.
export function askLimit(title, now, mostAtOnce, save) {
  return new Promise((resolve) => {
    const atOnce = h("input", { name: "concurrency", inputmode: "numeric", autocomplete: "off", value: now?.concurrency ?? "" });
    const starts = h("input", { name: "rate", autocomplete: "off", maxlength: 64, value: now?.rate === "" ? "none" : now?.rate ?? "" });
    const span = h("input", { name: "for", autocomplete: "off", required: true, value: "1h" });
    const trouble = h("p", { class: "wrap", role: "alert" });
    let isSaved = false;
    const dialog = open(h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            await save(limitOf(atOnce.value.trim(), starts.value.trim(), span.value));
            isSaved = true;
            dialog.close();
          } catch (error) {
            trouble.textContent = error.message;
          }
        },
      },
      h("h2", { id: "ask" }, title),
      h("p", { class: "muted" }, "It holds in place of the configuration, and ends by itself. What is left empty stays as configured."),
      h("label", {}, `Concurrency (${mostAtOnce})`, atOnce),
      h("label", {}, "Rate of starts (5/s, 600/min, 10/s burst 50; none: no limit)", starts),
      h("label", {}, "For (30s, 10m, 2h, 1d)", span),
      trouble,
      h("div", { class: "ends" },
        h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, "Limit")),
    ));
    dialog.setAttribute("aria-labelledby", "ask");
    dialog.addEventListener("close", () => resolve(isSaved));
  });
}

function limitOf(atOnce, starts, span) {
  if (atOnce && !/^[0-9]+$/.test(atOnce)) throw new Error("Concurrency: give a whole number, or nothing.");
  const length = seconds(span);
  if (length === null) throw new Error("For: write 30s, 10m, 2h or 1d.");
  const limit = { seconds: length };
  if (atOnce) limit.concurrency = Number(atOnce);
  if (starts) limit.rate = starts.toLowerCase() === "none" ? "" : starts;
  return limit;
}

// Runs an action and says what came of it, by `done` if there is one; true where it went well.
export async function attempt(work, done) {
  try {
    const answer = await work();
    if (done) toast(done(answer));
    return true;
  } catch (error) {
    toast(error.message, true);
    return false;
  }
}

