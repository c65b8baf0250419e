// What was written, to take along: as a command, a trace, a page, a film.

import { $, save } from "./dom.js";
import { film } from "./film.js";
import { states } from "./playback.js";

let asked = null, playback = null;

export function exported(body, shown) {
  asked = body;
  playback = shown;
  $("command").textContent = "";
}

const quoted = (text) => `'${String(text).replaceAll("'", `'\\''`)}'`;
const python = (value) => JSON.stringify(value).replaceAll(/\btrue\b/g, "True").replaceAll(/\bnull\b/g, "None");

// The template of a request; pieces are written as holes.
const template = () => asked.template ?? (asked.pieces ? asked.pieces.map((part) => (typeof part === "number" ? `[[${part}]]` : part)).join("") : null);

function options() {
  const found = { ...(asked.diffusion ?? {}), seed: asked.seed };
  if (asked.temperature !== undefined) found.temperature = asked.temperature;
  if (asked.max_tokens !== undefined) found.max_new_tokens = asked.max_tokens;
  return found;
}

const commands = {
  python: () => {
    const given = Object.entries(options()).map(([name, value]) => `${name}=${python(value)}`).join(", ");
    const [verb, text] = template() === null ? ["generate", asked.prompt] : ["infill", template()];
    return `import redraft\n\nfound = redraft.${verb}(${python(asked.model)}, ${python(text)}, ${given})\nprint(found.texts[0])`;
  },
  curl: () => `curl ${location.origin}/v1/${template() === null ? "completions" : "infill"} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(asked))}`,
  shell: () => {
    const flags = Object.entries(options()).map(([name, value]) => `--${name === "max_new_tokens" ? "new" : name.replaceAll("_", "-")} ${[value].flat().map(quoted).join(" ")}`).join(" ");
    const [verb, text] = template() === null ? ["generate", asked.prompt] : ["infill", template()];
    return `redraft ${verb} ${quoted(asked.model)} ${quoted(text)} ${flags}`;
  },
};

function page() {
  const style = "body{max-width:46rem;margin:2rem auto;font:1.15rem/1.7 Georgia,serif;padding:0 1rem;color-scheme:light dark}.noise{background:#8884;color:transparent}.given{text-decoration:underline}.new{background:#f59f00;color:#222}input{width:100%}";
  const data = JSON.stringify(playback.frames.map((frame, i) => frame.pieces.map((piece, at) => [piece ?? " ░░░", states(frame, playback.frames[i - 1])[at]]))).replaceAll("<", "\\u003c");
  const script = "const f=JSON.parse(document.getElementById('frames').textContent),p=document.querySelector('p'),s=document.querySelector('input');s.max=f.length-1;const show=()=>p.replaceChildren(...f[s.value].map(([t,c])=>{const e=document.createElement('span');e.textContent=t;e.className=c;return e}));s.oninput=show;s.value=f.length-1;show();";
  return `<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Written by Redraft</title><style>${style}</style><p></p><input type="range" min="0" aria-label="step"><script type="application/json" id="frames">${data}</script><script>${script}</script></html>`;
}

const files = {
  json: () => save("trace.json", "application/json", JSON.stringify({ request: asked, frames: playback.frames, record: playback.record }, null, 1)),
  html: () => save("writing.html", "text/html", page()),
  gif: () => save("writing.gif", "image/gif", film(playback.frames)),
};

export function setUp() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const line = commands[button.dataset.copy]();
      $("command").textContent = line;
      await navigator.clipboard?.writeText(line).catch(() => {});
    });
  }
  for (const button of document.querySelectorAll("[data-save]")) button.addEventListener("click", () => files[button.dataset.save]());
}
