// The routes of the server. All requests go to the origin of the page.

import { $, make } from "./dom.js";

export class ApiError extends Error {
  constructor(body, status, wait = null) {
    super(body?.error?.message ?? `the server responded with status ${status}`);
    [this.param, this.status, this.wait] = [body?.error?.param ?? null, status, wait];
  }
}

const RETRIES = 3;  // how often a request is sent again when the server is busy
const key = () => sessionStorage.getItem("redraft-key");
const headers = () => ({ "Content-Type": "application/json", ...(key() ? { Authorization: `Bearer ${key()}` } : {}) });
const pause = (seconds, signal) => new Promise((done, fail) => {
  signal?.addEventListener("abort", () => fail(signal.reason), { once: true });
  setTimeout(done, 1000 * seconds);
});

// Describes an error in one line.
export function errorMessage(error) {
  if (error.name === "AbortError") return "Stopped.";
  if (error instanceof ApiError && error.status === 429) return "The server is busy; try again in a moment.";
  if (error instanceof ApiError && error.status === 503) return `The server is not ready: ${error.message}.`;
  if (error instanceof ApiError) return `${error.message[0].toUpperCase()}${error.message.slice(1)}.`.replace(/\.\.$/, ".");
  return "The server does not respond. Is redraft still running?";
}

// Asks for the API key in a dialog; resolves to false if the user gives none.
function askForKey() {
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

async function request(path, options = {}, onEvent = () => {}, retry = 0) {
  const response = await fetch(path, { ...options, headers: headers() });
  if (response.ok) return response;
  if (response.status === 401 && (await askForKey())) return request(path, options, onEvent, retry);
  const wait = +(response.headers.get("Retry-After") ?? 0);
  if (response.status === 429 && wait && retry < RETRIES) {
    onEvent({ type: "wait", seconds: wait });
    await pause(wait, options.signal);
    return request(path, options, onEvent, retry + 1);
  }
  throw new ApiError(await response.json().catch(() => null), response.status, wait);
}

const known = new Map();

export async function models() {
  const { data } = await (await request("/v1/models")).json();
  for (const { id, diffusion } of data) known.set(id, diffusion);
  return data;
}

// Whether a model inserts tokens, which moves the tokens after them.
export const inserts = (id) => known.get(id)?.process === "Insertion";

export const post = async (path, body, onEvent) => (await request(path, { method: "POST", body: JSON.stringify(body) }, onEvent)).json();

// Calls `onEvent` with each event of a trace as it arrives: wait, start, frames, done.
export async function trace(body, onEvent, signal) {
  const response = await request("/v1/diffusion/trace", { method: "POST", body: JSON.stringify(body), signal }, onEvent);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", ended = false;
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines.filter((text) => text.trim())) {
      const event = JSON.parse(line);
      if (event.type === "error") throw new ApiError(event, 500);
      ended ||= event.type === "done";
      onEvent(event);
    }
    if (done && !ended) throw new TypeError("the connection was lost");
    if (done) return;
  }
}

export const waiting = (event) => `The server is busy; trying again in ${event.seconds} s …`;
export const failed = (error) => make("p", { class: "error", role: "alert" }, errorMessage(error));
