// The tab that writes: from a beginning, into holes, over a selection, in place of all that is not pinned.

import { inserts, said, trace, waiting } from "./api.js";
import { $, follow, make, number, percent, words } from "./dom.js";
import { exported } from "./export.js";
import { Playback } from "./playback.js";

// Each shows another order of writing: name, text, settings, what to look at.
const EXAMPLES = [
  ["From nothing", "", {}, "All places at once, in any order: names and verbs may come before the words around them."],
  ["A beginning", "One winter day,", {}, "What is given is underlined; everything after it is written, not from left to right."],
  ["Two holes", "One spring day, [[4]] walked to the [[1]].", {}, "Both holes are filled together, each knowing the words on both sides."],
  ["The end first", "[[30]] At home, Anna felt sad no more.", {}, "The end is known before the beginning: who, and what had to happen."],
  ["Any length", "One summer day, Clara felt [[*]] walked to the forest.", {}, "The model decides first how many tokens the hole has."],
  ["Surest first", "One winter day,", { sampler: "confidence" }, "What is nearly certain is written first, the choices come last."],
  ["Left to right", "One winter day,", { sampler: "left-to-right" }, "The order of an autoregressive model: the strip is a diagonal."],
  ["Eight steps", "One winter day,", { steps: 8 }, "Many tokens per network call: faster, but tokens written together may not fit together."],
  ["Two words", "", { required: "kite, harbour" }, "The rule is obeyed whatever the network says; both words find their places."],
];
const HOLE = /\[\[\s*(\d+|\d+\s*-\s*\d+|\*)\s*\]\]/;
const TOP = 5;  // likeliest tokens to keep of each place
let playback = null, running = null;

const filled = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined && value !== "" && value?.length !== 0));
const attributes = () => [...document.querySelectorAll("#attributes select")].filter((each) => each.value).map((each) => `${each.name}=${each.value}`);

// How to write, as the body of a request.
function manner(more = {}) {
  const sampler = $("sampler").value;
  const diffusion = filled({ sampler: sampler === "own" ? "" : sampler, steps: number("steps"), alternatives: TOP, ...more });
  return filled({ model: $("model").value, seed: number("seed") ?? 0, temperature: number("temperature"), diffusion });
}

const rules = () => ({ pattern: $("pattern").value, required: words("required"), banned: words("banned") });

function request() {
  const text = $("text").value, guidance = +$("guidance").value;
  if (HOLE.test(text)) return { ...manner(rules()), template: text };
  const wishes = filled({ attributes: attributes(), length: number("length") });
  if (Object.keys(wishes).length) return { ...manner({ ...rules(), ...wishes }), prompt: text };
  const asked = { label: $("label").value, source: $("source").value, guidance: guidance === 1 ? undefined : guidance };
  return { ...manner({ ...rules(), ...asked }), prompt: text, ...filled({ max_tokens: number("tokens") }) };
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
  if (shown.box.getBoundingClientRect().top > innerHeight - 150) shown.box.scrollIntoView();  // on a phone it is further down
  able();
  try {
    await trace(body, (event) => {
      if (event.type === "wait") shown.say(waiting(event));
      if (event.type === "frame" && event.row === 0) shown.add(event);
      if (event.type === "done") shown.finish(event);
    }, mine.signal);
    exported(body, shown);
  } catch (error) {
    shown.say(said(error), error.name !== "AbortError");
  }
  if (running === mine) running = null;
  able();
}

// The text as given parts and holes of as many tokens as are marked.
function pieces() {
  const found = [];
  playback.frames.at(-1).tokens.forEach(({ piece }, i) => {
    const part = playback.marked.has(i) ? 1 : piece;
    if (typeof found.at(-1) === typeof part) found.push(found.pop() + part);
    else found.push(part);
  });
  return found;
}

const another = () => { $("seed").value = (number("seed") ?? 0) + 1; };

function selected() {
  const range = getSelection().rangeCount ? getSelection().getRangeAt(0) : null;
  if (range === null || range.collapsed || !playback?.canvas.contains(range.commonAncestorContainer)) return;
  playback.mark([...playback.canvas.querySelectorAll(".token")].filter((token) => range.intersectsNode(token)).map((token) => +token.dataset.at));
}

function choose([, text, settings, says]) {
  $("write-form").reset();
  $("text").value = text;
  for (const [id, value] of Object.entries(settings)) $(id).value = value;
  $("control").open = "required" in settings;
  $("example-says").textContent = says;
  $("guidance").dispatchEvent(new Event("input"));
  $("write-form").requestSubmit();
}

function hole() {
  const field = $("text");
  field.setRangeText("[[4]]", field.selectionStart, field.selectionEnd, "end");
  field.focus();
}

// What the chosen model can be asked for.
export function suit(about) {
  $("label-of").hidden = !about.classes.length;
  $("label").replaceChildren(make("option", { value: "" }, "any"), ...about.classes.map((name) => make("option", { value: name }, name)));
  $("source-of").hidden = !about.answers;
  $("attributes").hidden = !Object.keys(about.attributes ?? {}).length;
  $("attributes").replaceChildren(make("legend", {}, "Attributes (with an empty text)"), ...Object.entries(about.attributes ?? {}).map(([name, values]) => make("label", {}, name,
    make("select", { name }, make("option", { value: "" }, "any"), ...values.map((value) => make("option", { value }, value))))));
}

export function setUp() {
  $("examples").append(...EXAMPLES.map((each) => make("button", { type: "button", onclick: () => choose(each) }, each[0])));
  $("write-form").addEventListener("submit", (event) => { event.preventDefault(); run(request()); });
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("write-form").requestSubmit(); });
  $("hole").addEventListener("click", hole);
  $("dice").addEventListener("click", another);
  $("stop").addEventListener("click", () => running?.abort());
  $("edit-it").addEventListener("click", () => run(manner({ start_text: $("text").value, strength: 1e-6 })));  // as good as unchanged
  document.addEventListener("selectionchange", selected);
  $("again").addEventListener("click", () => { another(); run({ ...manner(), pieces: pieces() }); });
  $("redraft").addEventListener("click", () => {
    const { pinned } = playback;
    another();
    run(manner({ start_text: playback.text, strength: +$("strength").value, pinned: [...pinned] })).then(() => { if (playback.record) { playback.pinned = pinned; playback.refresh(); } });
  });
  follow("strength", (value) => percent(value, 0));
  follow("guidance", (value) => (value === 1 ? "1 (as trained)" : value.toFixed(1)));
  able();
}
