// The tabs Correct and Choose: one request, one response.

import { failed, post, waiting } from "./api.js";
import { $, bar, follow, make, percent, words } from "./dom.js";

async function answer(box, path, body, render) {
  const note = (text) => box.replaceChildren(make("p", { class: "note" }, text));
  note("Working …");
  try {
    box.replaceChildren(...render(await post(path, { model: $("model").value, ...body }, (event) => note(waiting(event)))));
  } catch (error) {
    box.replaceChildren(failed(error));
  }
}

const probabilities = (rows) => make("ul", { class: "shares" }, ...rows.map(([names, probability]) => make("li", {}, make("span", {}, ...names), bar(probability), make("span", { class: "share" }, percent(probability)))));

// The text with its changes marked, the probability of each change, and the corrected text.
function corrected({ corrections: [{ input, changes, text }] }) {
  const marked = make("p", { class: "text" });
  let at = 0;
  for (const { start, original, replacement } of changes) {
    marked.append(input.slice(at, start), make("del", {}, original), " ", make("ins", {}, replacement));
    at = start + original.length;
  }
  marked.append(input.slice(at));
  if (!changes.length) return [marked, make("p", { class: "note" }, "Nothing to correct.")];
  return [marked, make("h3", {}, "Probability of each change"), probabilities(changes.map(({ original, replacement, probability }) => [[make("del", {}, original), " ", make("ins", {}, replacement)], probability])),
    make("h3", {}, "Corrected"), make("p", { class: "text" }, text)];
}

const chosen = ({ choices }) => choices.flatMap((hole) => {
  const order = hole.answers.map((text, i) => [[text], hole.probabilities[i]]).sort((a, b) => b[1] - a[1]);
  return [make("h2", {}, choices.length > 1 ? `Hole ${hole.hole + 1}` : "Probability of each answer"), probabilities(order)];
});

export function setUp() {
  follow("distrust", (value) => `${percent(value)} of the characters`);
  $("correct-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const keep = words("keep");
    answer($("corrected"), "/v1/correct", { texts: [$("wrong").value], noise: +$("distrust").value, names: $("names").checked, ...(keep.length ? { keep } : {}) }, corrected);
  });
  $("choose-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const answers = $("answers").value.split("\n").map((line) => line.trim()).filter(Boolean);
    answer($("chosen"), "/v1/choose", { template: $("question").value, answers }, chosen);
  });
}
