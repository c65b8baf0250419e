// The tab Noise: the forward process on a text at time t. The model's own noise comes from the server; the page draws
// the other kinds itself.

import { inserts, errorMessage, trace } from "./api.js";
import { $, chance, follow, make, ruler } from "./dom.js";
import { parted } from "./frames.js";
import { Playback } from "./playback.js";

const KEYS = ["qwertyuiop", "asdfghjkl", "zxcvbnm"];
const OTHERS = "the of and to in was on with at by a her his from she he it they home day sea wind boat kite bread star tree cold warm old new red blue ran sang gave found".split(" ");
const KINDS = { Masked: "mask", Remask: "mask", Star: "mask", Insertion: "insertion", Gaussian: "gaussian", Interpolating: "uniform", Markov: "uniform" };
const SAYS = {
  mask: "Each word is hidden with probability t, independently of the others. A model learns to predict the hidden words from the visible ones on both sides.",
  uniform: "Each word becomes any word with probability t. Nothing shows which words are still correct; a model learns to tell, and may change any word until the last step.",
  hybrid: "Some words are hidden, some become others. A model learns both to fill in and to correct what is already written.",
  insertion: "Words are hidden, and hidden words vanish, so nothing shows where words are missing. A model learns how many words to insert at each position, and which.",
  gaussian: "Each word is a vector, and noise moves it. With more noise, another word is more likely to be nearest. A model learns to predict the original vector.",
  typo: "Letters drift to neighboring keys. You can add a process of your own in one file, as examples/typo.py does for this one.",
};
let asking = null, process = "mask";

function neighbor(letter, u) {
  const row = KEYS.find((keys) => keys.includes(letter.toLowerCase()));
  if (!row) return letter;
  const at = row.indexOf(letter.toLowerCase()), to = row[Math.max(0, Math.min(row.length - 1, at + (u < 0.5 ? -1 : 1)))];
  return letter === letter.toLowerCase() ? to : to.toUpperCase();
}

// A word that is noised at some time stays noised at later ones, so the slider follows one path of the process.
function noised(word, i, kind, t) {
  if (kind === "typo") {
    const letters = [...word].map((letter, j) => (chance(i + 1, j) < t ? neighbor(letter, chance(j + 7, i)) : letter)).join("");
    return [letters, letters === word ? "" : "replaced"];
  }
  if (chance(1, i) >= t) return [word, ""];
  if (kind === "insertion" && chance(2, i) < t) return ["", "noise"];
  const hidden = kind === "mask" || kind === "insertion" || (kind === "hybrid" && chance(2, i) < 0.7);
  return hidden ? ["░".repeat(Math.max(2, word.length)), "noise"] : [OTHERS[Math.floor(chance(3, i) * OTHERS.length)], "replaced"];
}

const token = (text, look) => make("span", { class: `token ${look}` }, text);

function drawn(kind, t) {
  $("noised").replaceChildren(...$("clean").value.split(/(\s+)/).map((word, i) => (word.trim() ? token(...noised(word, i, kind, t)) : word)));
}

const request = (t) => ({ model: $("model").value, seed: 0, diffusion: { start_text: $("clean").value, strength: Math.max(1e-6, t) } });

// Returns the first canvas of an edit in place, which is the text noised up to its strength.
async function firstFrame(t, signal) {
  const stop = new AbortController();
  signal.addEventListener("abort", () => stop.abort());
  let frame = null;
  try {
    await trace(request(t), (event) => { if (event.type === "frame") { frame ??= event; stop.abort(); } }, stop.signal);
  } catch (error) {
    if (frame === null || signal.aborted) throw error;
  }
  return frame;
}

async function own(t) {
  asking?.abort();
  const { signal } = asking = new AbortController();
  try {
    await new Promise((done) => { setTimeout(done, 60); });  // a moving slider sends one request
    if (signal.aborted) return;
    const [clean, frame] = [await firstFrame(0, signal), await firstFrame(t, signal)], same = process !== "insertion";
    const pieces = same ? frame.pieces.slice(0, clean.pieces.length) : frame.pieces;  // after the text, the end tokens are masked
    const wide = ruler($("noised"));
    $("noised").replaceChildren(...pieces.flatMap((piece, i) => {
      const [space, word] = parted(piece), shown = token(word, piece === null ? "noise" : same && clean.pieces[i] !== piece ? "replaced" : "");
      if (piece === null && same) shown.style.width = `${wide(clean.pieces[i])}px`;  // so that nothing jumps
      return [space, shown];
    }));
  } catch (error) {
    if (!signal.aborted) $("noised").replaceChildren(make("span", { class: "error" }, errorMessage(error)));
  }
}

function show() {
  const t = +$("t").value, kind = $("kind").value;
  $("noise-says").textContent = SAYS[kind === "own" ? process : kind];
  $("undo").disabled = kind !== "own" || t === 0;
  if (kind === "own") own(t);
  else { asking?.abort(); drawn(kind, t); }
}

async function undo() {
  const shown = new Playback($("undone"), { moves: inserts($("model").value) });
  try {
    await trace(request(+$("t").value), (event) => {
      if (event.type === "frame") shown.add(event);
      if (event.type === "done") shown.finish(event);
    });
  } catch (error) {
    shown.say(errorMessage(error), true);
  }
}

// Adapts the tab to the noise of the chosen model.
export function adapt(about) {
  process = KINDS[about.process] ?? "mask";
  $("kind").options[0].textContent = `the noise of ${$("model").value} (${about.process})`;
  if (!$("noise").hidden) show();
}

export function setUp() {
  for (const id of ["t", "kind", "clean"]) $(id).addEventListener("input", show);
  follow("t", (t) => t.toFixed(2));
  $("tab-noise").addEventListener("shown", show);
  $("undo").addEventListener("click", undo);
  $("noise-form").addEventListener("submit", (event) => event.preventDefault());
}
