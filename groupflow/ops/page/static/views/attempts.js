// A task's attempts: on a line of time, and what each of those that failed said.

import { empty, h } from "../dom.js";
import { duration, moment, now } from "../format.js";

const LEAST = 0.6; // percent of the line that a bar has at least

// Attempts: as `errors` of a task or a letter has them. Running: since when one runs, if one does.
export function attemptsOf(errors, running) {
  if (!errors.length && !running) return empty("None has failed", "");
  return [timeline(errors, running), errors.length > 0 && h("ul", { class: "failures" }, errors.map(failure))];
}

function failure(error) {
  return h("li", {},
    h("div", {}, `attempt ${error.attempt ?? "–"}: ${error.error}`, error.at && h("span", { class: "muted" }, ` · ${moment(error.at)}, ${duration(error.seconds)} on ${error.daemon}`)),
    h("div", { class: "muted" }, error.message),
    error.traceback && h("pre", { class: "document", tabindex: "0", "aria-label": `Traceback of attempt ${error.attempt}` }, error.traceback));
}

function timeline(errors, running) {
  const bars = errors.filter((error) => error.at).map((error) => ({ name: String(error.attempt ?? "–"), from: error.at, to: error.at + error.seconds, state: "dead", said: error.error }));
  if (running?.since) bars.push({ name: String(running.attempt), from: running.since, to: now(), state: "running", said: "runs" });
  if (!bars.length) return null;
  const begin = bars[0].from;
  const span = Math.max(...bars.map((bar) => bar.to)) - begin || 1;
  return h("ol", { class: "attempts", "aria-label": "Attempts in time" }, bars.map((bar) => {
    const shown = h("span", { "data-state": bar.state });
    const width = Math.max(LEAST, ((bar.to - bar.from) / span) * 100);
    shown.style.width = `${Math.min(100, width)}%`;
    shown.style.marginLeft = `${Math.max(0, Math.min(100 - width, ((bar.from - begin) / span) * 100))}%`;
    return h("li", {}, h("span", { class: "muted" }, bar.name), h("div", { class: "track" }, shown),
      h("span", { class: "small" }, `${duration(bar.to - bar.from)}${bar.from > begin ? `, ${duration(bar.from - begin)} after the first` : ""}: ${bar.said}`));
  }));
}
