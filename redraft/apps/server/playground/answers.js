// Correct and choose: one question, one answer.

import { failed, post, waiting } from "./api.js";
import { $, bar, follow, make, percent, words } from "./dom.js";

async function answer(place, path, body, tell) {
  const note = (text) => place.replaceChildren(make("p", { class: "note" }, text));
  note("Reading …");
  try {
    place.replaceChildren(...tell(await post(path, { model: $("model").value, ...body }, (event) => note(waiting(event)))));
  } catch (error) {
    place.replaceChildren(failed(error));
  }
}

const shares = (rows) => make("ul", { class: "shares" }, ...rows.map(([names, share]) => make("li", {}, make("span", {}, ...names), bar(share), make("span", { class: "share" }, percent(share)))));

// The text with what was changed, the changes with how likely they are, the text as it should be.
function corrected({ corrections: [{ given, changes, text }] }) {
  const marked = make("p", { class: "text" });
  let at = 0;
  for (const { start, was, now } of changes) {
    marked.append(given.slice(at, start), make("del", {}, was), " ", make("ins", {}, now));
    at = start + was.length;
  }
  marked.append(given.slice(at));
  if (!changes.length) return [marked, make("p", { class: "note" }, "Nothing to correct.")];
  return [marked, make("h3", {}, "How likely each change is"), shares(changes.map(({ was, now, probability }) => [[make("del", {}, was), " ", make("ins", {}, now)], probability])),
    make("h3", {}, "Corrected"), make("p", { class: "text" }, text)];
}

const chosen = ({ choices }) => choices.flatMap((hole) => {
  const order = hole.answers.map((text, i) => [[text], hole.probabilities[i]]).sort((a, b) => b[1] - a[1]);
  return [make("h2", {}, choices.length > 1 ? `Hole ${hole.hole + 1}` : "How likely each answer is"), shares(order)];
});

export function setUp() {
  follow("distrust", (value) => `${percent(value)} of the letters`);
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
