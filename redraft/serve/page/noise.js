// The forward process by hand: what noise does to a text, and what a model sees of it at time t.

import { $, chance, make } from "./dom.js";

const KEYS = ["qwertyuiop", "asdfghjkl", "zxcvbnm"];
const OTHERS = "the of and to in was on with at by a her his from she he it they home day sea wind boat kite bread star tree cold warm old new red blue ran sang gave found".split(" ");
const SAYS = {
  mask: "Each word is hidden with probability t, independently of the others. A model learns what stood there, from all words that are left, on both sides.",
  uniform: "Each word becomes any word with probability t. Nothing shows which words are still right; a model learns to tell, and may change any word until the end.",
  hybrid: "Some words are hidden, some become others. A model learns both to fill in and to correct what is already written.",
  typo: "Letters drift to neighbouring keys. A process of your own takes one file: examples/typo.py is this one.",
};

function neighbour(letter, u) {
  const row = KEYS.find((keys) => keys.includes(letter.toLowerCase()));
  if (!row) return letter;
  const at = row.indexOf(letter.toLowerCase()), to = row[Math.max(0, Math.min(row.length - 1, at + (u < 0.5 ? -1 : 1)))];
  return letter === letter.toLowerCase() ? to : to.toUpperCase();
}

// A word that is hit at a time stays hit, so that moving the slider shows one path of the process.
function noised(word, i, kind, t) {
  if (kind === "typo") {
    const letters = [...word].map((letter, j) => (chance(i + 1, j) < t ? neighbour(letter, chance(j + 7, i)) : letter)).join("");
    return [letters, letters === word ? "" : "replaced"];
  }
  if (chance(1, i) >= t) return [word, ""];
  const hidden = kind === "mask" || (kind === "hybrid" && chance(2, i) < 0.7);
  return hidden ? ["░".repeat(Math.max(2, word.length)), "noise"] : [OTHERS[Math.floor(chance(3, i) * OTHERS.length)], "replaced"];
}

function show() {
  const t = +$("t").value, kind = $("kind").value;
  $("t-is").textContent = t.toFixed(2);
  $("noise-says").textContent = SAYS[kind];
  $("noised").replaceChildren(...$("clean").value.split(/(\s+)/).map((word, i) => {
    if (!word.trim()) return document.createTextNode(word);
    const [text, look] = noised(word, i, kind, t);
    return make("span", { class: `token ${look}` }, text);
  }));
}

export function setUp() {
  for (const id of ["t", "kind", "clean"]) $(id).addEventListener("input", show);
  $("noise-form").addEventListener("submit", (event) => event.preventDefault());
  show();
}
