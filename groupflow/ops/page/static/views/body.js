// What a task was published with: headers, and its body, indented where it is JSON; its result is shown as one.

import { empty, h, replace } from "../dom.js";
import { bytes } from "../format.js";

const DEEP = 64; // levels that are indented

export function bodyOf(found, context, again, name = "Body") {
  if (found.is_withheld) {
    return [found.body_bytes ? bytes(found.body_bytes) : "", empty(name === "Body" ? "Body and headers need the token" : `The ${name.toLowerCase()} needs the token`,
      h("button", { type: "button", onclick: async () => { if (await context.act()) await again(); } }, "Enter the token"))];
  }
  const size = `${bytes(found.body_bytes)}${found.is_cut ? ", its beginning" : ""}${found.body === null ? ", not UTF-8: as base64" : ""}`;
  const raw = found.body === null ? found.body_base64 : found.body || "(empty)";
  const neat = found.body === null || found.is_cut ? raw : indented(raw);
  const text = h("pre", { class: "document", tabindex: "0", "aria-label": name, "data-key": "body" }, neat);
  const button = neat !== raw && h("button", { type: "button", class: "small", "data-key": "original", onclick: () => {
    const isNeat = text.textContent === neat;
    replace(text, isNeat ? raw : neat);
    button.textContent = isNeat ? "Indented" : "Original";
  } }, "Original");
  return [size, [button && h("div", { class: "form row" }, button), text]];
}

export function headersOf(headers) {
  const all = Object.entries(headers);
  return all.length > 0 && h("dl", { class: "settings" }, all.map(([name, value]) => [h("dt", {}, name), h("dd", {}, typeof value === "string" ? value : JSON.stringify(value))]));
}

// Indents JSON by its characters: a value is never parsed and written again, so that 30 digits stay 30
// digits, and both of two equal keys are there. What isn't JSON stays as it is.
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let out = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEEP))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      out = /[{[]\s*$/.test(out.slice(-2 * DEEP - 4)) ? out.trimEnd() + token : out + line() + token;
    } else if (token === "{" || token === "[") {
      depth += 1;
      out += token + line();
    } else if (token === ",") out += token + line();
    else out += token === ":" ? ": " : token;
  }
  return out;
}
