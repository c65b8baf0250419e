// Correct and choose: one question, one answer.

import { post } from "./api.js";
import { $, make, said } from "./dom.js";

async function answer(place, asking, tell) {
  place.hidden = false;
  place.replaceChildren(make("p", { class: "note" }, "reading …"));
  try {
    tell(await asking(), place);
  } catch (error) {
    place.replaceChildren(make("p", { class: "error" }, said(error)));
  }
}

// The text with what was changed: before and after, and how likely.
function corrected(found, place) {
  const each = found.corrections[0], text = make("p", { class: "text" });
  const was = $("wrong").value;
  let at = 0;
  for (const change of each.changes) {
    const start = change.start ?? was.indexOf(change.was, at);
    text.append(was.slice(at, start), make("del", {}, change.was), " ", make("ins", { title: `${(100 * change.probability).toFixed(1)} % likely` }, change.now));
    at = start + change.was.length;
  }
  text.append(was.slice(at));
  const count = each.changes.length;
  place.replaceChildren(text, make("p", { class: "note" }, count ? `${count} change${count > 1 ? "s" : ""}; hold the pointer over one to see how likely it is` : "nothing to correct"),
    make("p", { class: "text" }, each.text));
}

function chosen(found, place) {
  place.replaceChildren(...found.choices.flatMap((hole) => {
    const order = hole.answers.map((text, i) => [text, hole.probabilities[i]]).sort((a, b) => b[1] - a[1]);
    return [make("h2", {}, `Hole ${hole.hole + 1}`), ...order.map(([text, p]) => make("div", { class: "answer" }, make("span", {}, text),
      make("meter", { min: 0, max: 1, value: p, "aria-label": text }), make("output", {}, `${(100 * p).toFixed(1)} %`)))];
  }));
}

export function setUp() {
  $("distrust").addEventListener("input", () => { $("distrust-is").textContent = `${(100 * $("distrust").value).toFixed(1)} % of the letters`; });
  $("correct-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const keep = $("keep").value.split(",").map((word) => word.trim()).filter(Boolean);
    answer($("corrected"), () => post("/v1/correct", { model: $("model").value, texts: [$("wrong").value], noise: +$("distrust").value, names: $("names").checked, ...(keep.length ? { keep } : {}) }), corrected);
  });
  $("choose-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const answers = $("answers").value.split("\n").map((line) => line.trim()).filter(Boolean);
    answer($("chosen"), () => post("/v1/choose", { model: $("model").value, template: $("question").value, answers }), chosen);
  });
}
