// The tab Write: continue a prompt, fill holes, rewrite a selection, or redraft everything that is not pinned.

import { inserts, errorMessage, trace, waiting } from "./api.js";
import { $, follow, make, number, percent, words } from "./dom.js";
import { buttons } from "./examples.js";
import { exported } from "./export.js";
import { Playback } from "./playback.js";

const HOLE = /\[\[\s*(\d+|\d+\s*-\s*\d+|\*)\s*\]\]/;
const TOP = 5;  // number of most likely tokens to keep per position
let playback = null, running = null;

const filled = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined && value !== "" && value?.length !== 0));
const attributes = () => [...document.querySelectorAll("#attributes select")].filter((each) => each.value).map((each) => `${each.name}=${each.value}`);

// The sampling settings as the body of a request.
function settings(more = {}) {
  const sampler = $("sampler").value;
  const diffusion = filled({ sampler: sampler === "own" ? "" : sampler, steps: number("steps"), alternatives: TOP, ...more });
  return filled({ model: $("model").value, seed: number("seed") ?? 0, temperature: number("temperature"), diffusion });
}

const rules = () => ({ pattern: $("pattern").value, required: words("required"), banned: words("banned") });

function request() {
  const text = $("text").value, guidance = +$("guidance").value;
  if (HOLE.test(text)) return { ...settings(rules()), template: text };
  const controls = filled({ attributes: attributes(), length: number("length") });
  if (Object.keys(controls).length) return { ...settings({ ...rules(), ...controls }), prompt: text };
  const condition = { label: $("label").value, source: $("source").value, guidance: guidance === 1 ? undefined : guidance };
  return { ...settings({ ...rules(), ...condition }), prompt: text, ...filled({ max_tokens: number("tokens") }) };
}

function able() {
  const ready = playback?.record != null && running === null;
  for (const button of document.querySelectorAll("#export button, #redraft, #strength")) button.disabled = !ready;
  $("again").disabled = !ready || !playback.marked.size;
  $("stop").disabled = running === null;
  $("written").setAttribute("aria-busy", running !== null);
  $("pins").textContent = playback?.pinned.size ? `Pinned: ${[...playback.pinned].join(", ")}.` : "";
}

async function run(body) {
  running?.abort();
  const mine = running = new AbortController();
  playback?.player.pause();
  const shown = playback = new Playback($("written"), { editable: true, moves: inserts(body.model), changed: able });
  if (shown.box.getBoundingClientRect().top > innerHeight - 150) shown.box.scrollIntoView();  // on a phone it is below the form
  able();
  try {
    await trace(body, (event) => {
      if (event.type === "wait") shown.say(waiting(event));
      if (event.type === "frame" && event.row === 0) shown.add(event);
      if (event.type === "done") shown.finish(event);
    }, mine.signal);
    exported(body, shown);
  } catch (error) {
    shown.say(errorMessage(error), error.name !== "AbortError");
  }
  if (running === mine) running = null;
  able();
}

// The text as given parts, and the number of selected tokens in each hole.
function pieces() {
  const parts = [];
  playback.frames.at(-1).tokens.forEach(({ piece }, i) => {
    const part = playback.marked.has(i) ? 1 : piece;
    if (typeof parts.at(-1) === typeof part) parts.push(parts.pop() + part);
    else parts.push(part);
  });
  return parts;
}

const another = () => { $("seed").value = (number("seed") ?? 0) + 1; };

function selected() {
  const range = getSelection().rangeCount ? getSelection().getRangeAt(0) : null;
  if (range === null || range.collapsed || !playback?.canvas.contains(range.commonAncestorContainer)) return;
  playback.mark([...playback.canvas.querySelectorAll(".token")].filter((token) => range.intersectsNode(token)).map((token) => +token.dataset.at));
}

function choose([, text, values, explanation]) {
  $("write-form").reset();
  $("text").value = text;
  for (const [id, value] of Object.entries(values)) $(id).value = value;
  $("control").open = "required" in values || "pattern" in values;
  $("example-says").textContent = explanation;
  $("guidance").dispatchEvent(new Event("input"));
  $("write-form").requestSubmit();
}

function hole() {
  const field = $("text");
  field.setRangeText("[[4]]", field.selectionStart, field.selectionEnd, "end");
  field.focus();
}

// Adapts the form to the chosen model.
export function adapt({ write }, about) {
  buttons($("examples"), write, choose);
  $("label-of").hidden = !about.classes.length;
  $("label").replaceChildren(make("option", { value: "" }, "any"), ...about.classes.map((name) => make("option", { value: name }, name)));
  $("source-of").hidden = !about.answers;
  $("attributes").hidden = !Object.keys(about.attributes ?? {}).length;
  $("attributes").replaceChildren(make("legend", {}, "Attributes (with an empty text)"), ...Object.entries(about.attributes ?? {}).map(([name, values]) => make("label", {}, name,
    make("select", { name }, make("option", { value: "" }, "any"), ...values.map((value) => make("option", { value }, value))))));
}

export function setUp() {
  $("write-form").addEventListener("submit", (event) => { event.preventDefault(); run(request()); });
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("write-form").requestSubmit(); });
  $("hole").addEventListener("click", hole);
  $("dice").addEventListener("click", another);
  $("stop").addEventListener("click", () => running?.abort());
  $("edit-it").addEventListener("click", () => run(settings({ start_text: $("text").value, strength: 1e-6 })));  // almost no noise, so the text stays
  document.addEventListener("selectionchange", selected);
  $("again").addEventListener("click", () => { another(); run({ ...settings(), pieces: pieces() }); });
  $("redraft").addEventListener("click", () => {
    const { pinned } = playback;
    another();
    run(settings({ start_text: playback.text, strength: +$("strength").value, pinned: [...pinned] })).then(() => { if (playback.record) { playback.pinned = pinned; playback.refresh(); } });
  });
  follow("strength", (value) => percent(value, 0));
  follow("guidance", (value) => (value === 1 ? "1 (as trained)" : value.toFixed(1)));
  able();
}
