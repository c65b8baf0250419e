// Two to four models or samplers write the same text at the same time, on one clock.

import { trace } from "./api.js";
import { $, make, said } from "./dom.js";
import { parted, states } from "./playback.js";

const MOST = 4;
let samplers = [], models = [], lanes = [], timer = null, race = 0;

function rival(sampler) {
  const list = (values, chosen) => make("select", {}, ...values.map((value) => make("option", { value, selected: value === chosen }, value)));
  const box = make("div", { class: "rival" }, make("label", {}, "Model ", list(models, models[0])), make("label", {}, "Sampler ", list(samplers, sampler)),
    make("label", {}, "Steps ", make("input", { type: "number", min: 1, max: 1000, placeholder: "own" })));
  $("rivals").append(box);
  $("more").disabled = $("rivals").children.length >= MOST;
}

function lane(box, number) {
  const [model, sampler] = [...box.querySelectorAll("select")].map((select) => select.value), steps = box.querySelector("input").value;
  const text = make("p", { class: "text canvas" }), note = make("p", { class: "note" }, "waiting …");
  const article = make("article", { class: "card" }, make("h2", {}, `${number + 1}. ${sampler} `, make("span", {}, model + (steps ? `, ${steps} steps` : ""))), text, note);
  $("race").append(article);
  return { model, sampler, steps, text, note, frames: [], end: 0 };
}

async function write(each, begun, mine) {
  const diffusion = { ...(each.sampler === "own" ? {} : { sampler: each.sampler }), ...(each.steps ? { steps: +each.steps } : {}) };
  const text = $("same").value, given = text.includes("[[") ? { template: text } : { prompt: text };
  try {
    await trace({ model: each.model, seed: +$("race-seed").value, ...given, ...(Object.keys(diffusion).length ? { diffusion } : {}) }, (event) => {
      if (mine !== race) return;
      const at = performance.now() - begun;
      if (event.type === "frame") { each.frames.push({ ...event, at }); each.end = at; show(at); }
      if (event.type === "done") { each.note.textContent = `${event.nfe.toFixed(0)} network calls, ${event.seconds.toFixed(2)} s of the model, ${(event.new_tokens / Math.max(1, event.nfe)).toFixed(1)} tokens a call`; }
    });
  } catch (error) {
    each.note.textContent = said(error);
    each.note.classList.add("error");
  }
}

function show(at) {
  for (const each of lanes) {
    const last = each.frames.findLastIndex((frame) => frame.at <= at);
    if (last < 0) { each.text.replaceChildren(); continue; }
    const frame = each.frames[last], looks = states(frame, each.frames[last - 1]);
    each.text.replaceChildren(...frame.pieces.flatMap((piece, i) => {
      const [space, word] = parted(piece);
      return [space, make("span", { class: `token ${looks[i]}` }, word)];
    }));
  }
  $("race-is").textContent = `${(at / 1000).toFixed(2)} s`;
}

const end = () => Math.max(1, ...lanes.map((each) => each.end));

function play() {
  if (timer !== null) { clearInterval(timer); timer = null; $("race-play").textContent = "▶"; return; }
  const begun = performance.now(), from = +$("race-clock").value >= 1000 ? 0 : (+$("race-clock").value / 1000) * end();
  $("race-play").textContent = "⏸";
  timer = setInterval(() => {
    const at = Math.min(end(), from + performance.now() - begun);
    $("race-clock").value = (1000 * at) / end();
    show(at);
    if (at >= end()) play();
  }, 40);
}

export function setUp(knownModels, knownSamplers) {
  [models, samplers] = [knownModels, knownSamplers];
  ["confidence", "any-order"].forEach(rival);
  $("more").addEventListener("click", () => rival("threshold"));
  $("race-clock").addEventListener("input", () => show((+$("race-clock").value / 1000) * end()));
  $("race-play").addEventListener("click", play);
  $("compare-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    race += 1;
    $("race").replaceChildren();
    $("race-time").hidden = false;
    $("race-clock").value = 1000;
    lanes = [...$("rivals").children].map(lane);
    const begun = performance.now(), mine = race;
    await Promise.all(lanes.map((each) => write(each, begun, mine)));
    if (mine === race) show(end());
  });
}
