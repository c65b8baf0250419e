// The tab that writes: from a beginning, into holes, over a selection, in place of all that is not pinned.

import { trace } from "./api.js";
import { $, chance, make, said } from "./dom.js";
import { exported } from "./export.js";
import { Playback } from "./playback.js";

const EXAMPLES = [
  ["From nothing", ""],
  ["A beginning", "One winter day,"],
  ["Two holes", "One spring day, [[4]] walked to the [[1]]."],
  ["The end is given", "[[12]] At home, Anna felt sad no more."],
  ["Any length", "One summer day, Clara felt [[*]] walked to the forest."],
];
const HOLE = /\[\[\s*(\d+|\d+\s*-\s*\d+|\*)\s*\]\]/;
let playback = null, running = null, asked = null;

const words = (id) => $(id).value.split(",").map((word) => word.trim()).filter(Boolean);
const number = (id) => ($(id).value === "" ? undefined : +$(id).value);

// The settings of the form, as the body of a request.
export function settings() {
  const diffusion = {};
  if ($("sampler").value !== "own") diffusion.sampler = $("sampler").value;
  if (number("steps")) diffusion.steps = number("steps");
  if ($("pattern").value) diffusion.pattern = $("pattern").value;
  if (words("required").length) diffusion.required = words("required");
  if (words("banned").length) diffusion.banned = words("banned");
  if (number("guidance") !== undefined) diffusion.guidance = number("guidance");
  if ($("label").value) diffusion.label = $("label").value;
  const body = { model: $("model").value, seed: number("seed") ?? 0 };
  if (number("temperature") !== undefined) body.temperature = number("temperature");
  if (Object.keys(diffusion).length) body.diffusion = diffusion;
  return body;
}

function request() {
  const text = $("text").value;
  if (HOLE.test(text)) return { ...settings(), template: text };
  return { ...settings(), prompt: text, ...(number("tokens") ? { max_tokens: number("tokens") } : {}) };
}

export async function run(body) {
  running?.abort();
  running = new AbortController();
  const mine = running;
  asked = body;
  playback?.pause();
  playback = new Playback($("written"), { editable: true });
  $("stop").disabled = false;
  $("edit").hidden = $("export").hidden = true;
  try {
    await trace(body, (event) => {
      if (event.type === "frame" && event.row === 0) playback.add(event);
      if (event.type === "done") playback.finish(event);
    }, mine.signal);
    $("edit").hidden = $("export").hidden = false;
    exported(asked, playback);
  } catch (error) {
    playback.fail(said(error));
  } finally {
    if (running === mine) $("stop").disabled = true;
  }
}

// The text as pieces: given parts and holes of as many tokens as are to be written again.
function pieces(hidden) {
  const found = [];
  playback.frames.at(-1).pieces.forEach((piece, i) => {
    const last = found.at(-1);
    if (hidden(i)) found.length && typeof last === "number" ? found.push(found.pop() + 1) : found.push(1);
    else found.length && typeof last === "string" ? found.push(found.pop() + piece) : found.push(piece);
  });
  return found;
}

function again(hidden) {
  const parts = pieces(hidden);
  if (!parts.some((part) => typeof part === "number")) return playback.fail("nothing is selected: mark some words of the text first");
  const { seed, model, diffusion, temperature } = settings();
  const { guidance, label, ...own } = diffusion ?? {};
  $("seed").value = seed + 1;  // another draw than before
  return run({ model, seed: seed + 1, ...(temperature === undefined ? {} : { temperature }), pieces: parts, ...(Object.keys(own).length ? { diffusion: own } : {}) });
}

function selected() {
  const range = getSelection().rangeCount ? getSelection().getRangeAt(0) : null;
  const tokens = [...playback.canvas.querySelectorAll(".token")];
  return new Set(range === null || range.collapsed ? [] : tokens.filter((token) => range.intersectsNode(token)).map((token) => +token.dataset.at));
}

export function setUp() {
  $("examples").append(...EXAMPLES.map(([name, text]) => make("button", { type: "button", onclick: () => { $("text").value = text; $("write-form").requestSubmit(); } }, name)));
  $("write-form").addEventListener("submit", (event) => { event.preventDefault(); run(request()); });
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("write-form").requestSubmit(); });
  $("stop").addEventListener("click", () => running?.abort());
  let marked = new Set();
  document.addEventListener("selectionchange", () => { if (playback && playback.canvas.contains(getSelection().anchorNode)) marked = selected(); });
  $("again").addEventListener("click", () => again((i) => marked.has(i)));
  $("strength").addEventListener("input", () => { $("strength-is").textContent = `${Math.round(100 * $("strength").value)} %`; });
  $("redraft").addEventListener("click", () => {
    const strength = +$("strength").value, seed = number("seed") ?? 0;
    again((i) => !playback.pinned.has(i) && chance(seed, i) < strength);
  });
}
