// Exports a result as a command, a trace, a page or a film.

import { $, announce, save } from "./dom.js";
import { film } from "./film.js";
import { counts, parted } from "./frames.js";

let request = null, playback = null;

export function exported(body, shown) {
  [request, playback] = [body, shown];
  $("command").textContent = "";
}

const quoted = (text) => `'${String(text).replaceAll("'", `'\\''`)}'`;
const python = (value) => (value === true ? "True" : value === false ? "False" : value === null ? "None" : JSON.stringify(value));
const FLAGS = { max_new_tokens: "new", attributes: "attribute", pinned: "pin" };

// The request as a function call: its name, its text (null without one) and its arguments.
function call() {
  const { alternatives, start_text: draft, ...own } = request.diffusion ?? {};  // eslint-disable-line no-unused-vars
  const args = { ...own, seed: request.seed, ...(request.temperature === undefined ? {} : { temperature: request.temperature }), ...(request.max_tokens === undefined ? {} : { max_new_tokens: request.max_tokens }) };
  if (draft !== undefined) return ["rewrite", draft, args];
  if (request.pieces) return ["infill", request.pieces.map((part) => (typeof part === "number" ? `[[${part}]]` : part)).join(""), args];
  if (request.template !== undefined) return ["infill", request.template, args];
  return own.attributes || own.length ? ["control", null, args] : ["generate", request.prompt, args];
}

const commands = {
  python: () => {
    const [verb, text, args] = call(), values = Object.entries(args).map(([name, value]) => `${name}=${python(value)}`);
    return `import redraft\n\nresult = redraft.${verb}(${[python(request.model), ...(text === null ? [] : [python(text)]), ...values].join(", ")})\nprint(result.texts[0])`;
  },
  curl: () => {
    const body = { ...request, diffusion: { ...request.diffusion } };
    delete body.diffusion.alternatives;
    return `curl ${location.origin}/v1/${request.pieces || request.template !== undefined ? "infill" : "completions"} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
  },
  shell: () => {
    const [verb, text, args] = call();
    const flags = Object.entries(args).map(([name, value]) => `--${FLAGS[name] ?? name.replaceAll("_", "-")} ${[value].flat().map(quoted).join(" ")}`);
    return `redraft ${[verb, quoted(request.model), ...(text === null ? [] : [quoted(text)]), ...flags].join(" ")}`;
  },
};

const STYLE = `:root{color-scheme:light dark;--ink:#23262b;--paper:#fbfaf6;--noise:#dcd7ca;--given:#0b7285;--new:#f59f00;--sure:59 91 219;--quiet:#5c6068}
@media(prefers-color-scheme:dark){:root{--ink:#e6e4df;--paper:#16181d;--noise:#3a3e48;--given:#4cc3d9;--new:#ffb62e;--sure:142 166 255;--quiet:#a3a8b1}}
body{max-width:46rem;margin:2rem auto;padding:0 1rem;background:var(--paper);color:var(--ink);font:1.2rem/1.75 Charter,Georgia,serif}
p{white-space:pre-wrap;min-height:8rem}span{border-radius:4px}.noise{background:var(--noise);color:transparent}.given{color:var(--given);text-decoration:underline}.new{background:var(--new);color:#23262b}.changed{border-bottom:2px dashed #c2570c}
div{display:flex;gap:.8rem;margin:.6rem 0;align-items:center;font:.9rem system-ui,sans-serif;color:var(--quiet)}input{flex:1}button{font:inherit;padding:.3rem .9rem}`;
const SCRIPT = `const f=JSON.parse(document.getElementById("frames").textContent),$=(s)=>document.querySelector(s),s=$("input");let timer=null;s.max=f.length-1;
const show=()=>{const {step,tokens}=f[s.value];$("p").replaceChildren(...tokens.flatMap(([b,t,c,d])=>{const e=document.createElement("span");e.textContent=t;e.className=c;if(d!==null&&/settled/.test(c))e.style.background="rgb(var(--sure) / "+d*.45+")";return [b,e]}));$("output").textContent="step "+step+" of "+f.at(-1).step};
const stop=()=>{clearInterval(timer);timer=null;$("button").textContent="Play"};s.oninput=()=>{stop();show()};
$("button").onclick=()=>{if(timer)return stop();if(+s.value===f.length-1)s.value=0;$("button").textContent="Pause";timer=setInterval(()=>{s.value=+s.value+1;show();if(+s.value===f.length-1)stop()},Math.max(60,4000/f.length))};s.value=f.length-1;show();`;

// A self-contained page: the frames as data, a slider and a button.
function page() {
  const frames = playback.frames.map(({ step, tokens }) => ({ step, tokens: tokens.map(({ piece, look, changes, sure }) => [...parted(piece), changes ? `${look} changed` : look, sure === null ? null : +(1 - sure).toFixed(3)]) }));
  for (const token of frames.at(-1).tokens) token[2] = token[2].replace("new", "settled");  // nothing is new any more
  const { nfe } = playback.record, { written } = counts(playback.frames.at(-1));
  return `<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Written by Redraft</title><style>${STYLE}</style><p></p><div><button type="button">Play</button><input type="range" min="0" aria-label="Step"><output></output></div><div>${written} tokens, ${nfe.toFixed(0)} network calls, written by Redraft</div><script type="application/json" id="frames">${JSON.stringify(frames).replaceAll("<", "\\u003c")}</script><script>${SCRIPT}</script></html>`;
}

const files = {
  json: () => save("trace.json", "application/json", JSON.stringify({ request: request, frames: playback.frames.map(({ tokens, ...frame }) => frame), record: playback.record }, null, 1)),
  html: () => save("writing.html", "text/html", page()),
  gif: () => save("writing.gif", "image/gif", film(playback.frames)),
};

export function setUp() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const line = commands[button.dataset.copy]();
      $("command").textContent = line;
      const copied = await navigator.clipboard?.writeText(line).then(() => true, () => false);
      announce(copied ? "Copied." : "The command is shown below the buttons.");
    });
  }
  for (const button of document.querySelectorAll("[data-save]")) button.addEventListener("click", () => files[button.dataset.save]());
}
