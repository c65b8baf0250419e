// The server's routes. Everything is asked of the origin that the page came from.

import { $, make } from "./dom.js";

export class ApiError extends Error {
  constructor(body, status, wait = null) {
    super(body?.error?.message ?? `the server answered ${status}`);
    [this.param, this.status, this.wait] = [body?.error?.param ?? null, status, wait];
  }
}

const AGAIN = 3;  // how often a request is sent again when the server is busy
const key = () => sessionStorage.getItem("redraft-key");
const headers = () => ({ "Content-Type": "application/json", ...(key() ? { Authorization: `Bearer ${key()}` } : {}) });
const pause = (seconds, signal) => new Promise((done, fail) => {
  signal?.addEventListener("abort", () => fail(signal.reason), { once: true });
  setTimeout(done, 1000 * seconds);
});

// What went wrong, in one line.
export function said(error) {
  if (error.name === "AbortError") return "Stopped.";
  if (error instanceof ApiError && error.status === 429) return "The server is busy; try again in a moment.";
  if (error instanceof ApiError && error.status === 503) return `The server is not ready: ${error.message}.`;
  if (error instanceof ApiError) return `${error.message[0].toUpperCase()}${error.message.slice(1)}.`.replace(/\.\.$/, ".");
  return "The server does not answer. Is redraft still running?";
}

// Asks for the API key, in a dialog of the page; false if it is not given.
function keyed() {
  const dialog = $("key-dialog"), input = $("key");
  input.value = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "ok" && input.value) sessionStorage.setItem("redraft-key", input.value);
      done(dialog.returnValue === "ok" && input.value !== "");
    }, { once: true });
  });
}

async function asked(path, options = {}, tell = () => {}, again = 0) {
  const found = await fetch(path, { ...options, headers: headers() });
  if (found.ok) return found;
  if (found.status === 401 && (await keyed())) return asked(path, options, tell, again);
  const wait = +(found.headers.get("Retry-After") ?? 0);
  if (found.status === 429 && wait && again < AGAIN) {
    tell({ type: "wait", seconds: wait });
    await pause(wait, options.signal);
    return asked(path, options, tell, again + 1);
  }
  throw new ApiError(await found.json().catch(() => null), found.status, wait);
}

const known = new Map();

export async function models() {
  const { data } = await (await asked("/v1/models")).json();
  for (const { id, diffusion } of data) known.set(id, diffusion);
  return data;
}

// Whether a model inserts tokens, so that others move.
export const inserts = (id) => known.get(id)?.process === "Insertion";

export const post = async (path, body, tell) => (await asked(path, { method: "POST", body: JSON.stringify(body) }, tell)).json();

// Calls `tell` with each event of a trace as it arrives: wait, start, frames, done.
export async function trace(body, tell, signal) {
  const found = await asked("/v1/diffusion/trace", { method: "POST", body: JSON.stringify(body), signal }, tell);
  const reader = found.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", ended = false;
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines.filter((each) => each.trim())) {
      const event = JSON.parse(line);
      if (event.type === "error") throw new ApiError(event, 500);
      ended ||= event.type === "done";
      tell(event);
    }
    if (done && !ended) throw new TypeError("the connection was lost");
    if (done) return;
  }
}

export const waiting = (event) => `The server is busy; asking again in ${event.seconds} s …`;
export const failed = (error) => make("p", { class: "error", role: "alert" }, said(error));
