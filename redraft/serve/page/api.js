// The server's routes. Everything is asked of the origin that the page came from.

export class ApiError extends Error {
  constructor(body, status) {
    super(body?.error?.message ?? `the server answered ${status}`);
    this.param = body?.error?.param ?? null;
  }
}

const key = () => sessionStorage.getItem("redraft-key");
const headers = () => ({ "Content-Type": "application/json", ...(key() ? { Authorization: `Bearer ${key()}` } : {}) });

async function asked(path, options = {}) {
  const found = await fetch(path, { ...options, headers: headers() });
  if (found.status === 401 && !options.again) {
    const given = prompt("This server needs its API key");
    if (given) {
      sessionStorage.setItem("redraft-key", given);
      return asked(path, { ...options, again: true });
    }
  }
  if (!found.ok) throw new ApiError(await found.json().catch(() => null), found.status);
  return found;
}

export const models = async () => (await (await asked("/v1/models")).json()).data;

export const post = async (path, body) => (await asked(path, { method: "POST", body: JSON.stringify(body) })).json();

// Calls `tell` with each event of a trace as it arrives: start, frames, done.
export async function trace(body, tell, signal) {
  const found = await asked("/v1/diffusion/trace", { method: "POST", body: JSON.stringify(body), signal });
  const reader = found.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) {
      if (!line.trim()) continue;
      const event = JSON.parse(line);
      if (event.type === "error") throw new ApiError(event, 500);
      tell(event);
    }
    if (done) return;
  }
}
