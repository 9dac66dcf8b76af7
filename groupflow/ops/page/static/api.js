// The daemon's API. The token is kept for this tab alone and is sent only by these calls, in a header:
// no other site can make a browser send it.

const TOKEN = "groupflow.token";
const NAME = "groupflow.name";

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

const kept = new Map();

function recall(name) {
  if (kept.has(name)) return kept.get(name);
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

function keep(name, value) {
  kept.set(name, value);
  try {
    sessionStorage.setItem(name, value);
  } catch {
    // Storage is off: it is kept until the page is left.
  }
}

export const token = () => recall(TOKEN);
export const name = () => recall(NAME);
export const setToken = (value) => keep(TOKEN, value);
export const setName = (value) => keep(NAME, value);

function headers(more) {
  const all = new Headers(more);
  if (token()) all.set("Authorization", `Bearer ${token()}`);
  return all;
}

async function answered(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, answer.detail ?? `HTTP ${response.status}`);
  return answer;
}

async function sent(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The daemon does not answer.");
  }
  return answered(response);
}

export function get(path, params = {}, signal) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== "" && value !== undefined && value !== null) query.set(key, value);
  }
  const text = query.toString();
  return sent(`/api/${path}${text ? `?${text}` : ""}`, { headers: headers(), signal });
}

// The same of a thing that may not be there: null then.
export const find = (path, params) => get(path, params).catch((error) => {
  if (error.status === 404) return null;
  throw error;
});

export function post(path, body) {
  const content = headers({ "Content-Type": "application/json" });
  return sent(`/api/${path}`, { method: "POST", headers: content, body: JSON.stringify(body) });
}

export const act = (path, body) => post(path, { ...body, by: name() });

const wait = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

// Follows the server-sent events for ever. By fetch, since EventSource can't send the token.
export async function follow(onevent, onstate) {
  for (;;) {
    try {
      const response = await fetch("/api/events", { headers: headers() });
      if (!response.ok) await answered(response);
      onstate("live");
      await read(response.body.getReader(), onevent);
    } catch (error) {
      onstate("trouble", error instanceof Problem && error.status ? error.message : "No connection");
    }
    await wait(1500);
  }
}

async function read(reader, onevent) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Problem(0, "The daemon has ended the stream.");
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const lines = event.split("\n");
      const kind = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (kind && data) onevent(kind, JSON.parse(data));
    }
  }
}
