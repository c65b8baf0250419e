// The tab Compare: two to four models or samplers generate the same text at the same time, on one clock.

import { inserts, errorMessage, trace, waiting } from "./api.js";
import { $, bar, make, options, Player } from "./dom.js";
import { classes, counts, parted, perCall, seen } from "./frames.js";

const MOST = 4, LEAST = 2, SUGGESTED = ["confidence", "any-order", "threshold", "left-to-right"];
let samplers = [], models = [], mates = [], lanes = [], race = 0, at = 0;

function able() {
  const rivals = [...$("rivals").children];
  $("more").disabled = rivals.length >= MOST;
  rivals.forEach((box, i) => {
    box.querySelector("legend").textContent = `Writer ${i + 1}`;
    box.querySelector("button").disabled = rivals.length <= LEAST;
  });
}

function rival() {
  const i = $("rivals").children.length;
  const box = make("fieldset", { class: "rival" }, make("legend"), make("label", {}, "Model", make("select", {}, ...options(models, mates[i % mates.length]))),
    make("label", {}, "Sampler", make("select", {}, ...options(samplers, mates.length > 1 ? "own" : SUGGESTED[i]))), make("label", {}, "Steps", make("input", { type: "number", min: 1, max: 1000, placeholder: "own" })),
    make("button", { type: "button", "aria-label": "Remove this writer", onclick: () => { box.remove(); able(); } }, "✕"));
  $("rivals").append(box);
  able();
}

function lane(box, i) {
  const [model, sampler] = [...box.querySelectorAll("select")].map((select) => select.value), steps = box.querySelector("input").value;
  const text = make("p", { class: "text canvas" }), note = make("p", { class: "note", role: "status" }, "Waiting …"), done = bar(0);
  const name = sampler === "own" ? "its own sampler" : sampler;
  $("race").append(make("article", { class: "card", "aria-label": `Writer ${i + 1}` }, make("h2", {}, `${i + 1}. ${name} `, make("span", {}, model + (steps ? `, ${steps} steps` : ""))), done, text, note));
  return { model, sampler, steps, text, note, done, frames: [], record: null, wrong: false, shown: -1 };
}

async function write(each, begun, mine) {
  const diffusion = { ...(each.sampler === "own" ? {} : { sampler: each.sampler }), ...(each.steps ? { steps: +each.steps } : {}) };
  const text = $("same").value, given = text.includes("[[") ? { template: text } : { prompt: text };
  try {
    await trace({ model: each.model, seed: +$("race-seed").value, ...given, ...(Object.keys(diffusion).length ? { diffusion } : {}) }, (event) => {
      if (mine !== race) return;
      if (event.type === "wait") each.note.textContent = waiting(event);
      if (event.type === "done") each.record = event;
      if (event.type !== "frame") return;
      each.frames.push({ ...seen(event, each.frames.at(-1), inserts(each.model)), at: performance.now() - begun });
      show(end());
    });
  } catch (error) {
    each.wrong = true;
    each.note.textContent = errorMessage(error);
    each.note.classList.add("error");
  }
}

const end = () => Math.max(1, ...lanes.map((each) => each.frames.at(-1)?.at ?? 0));

function show(time) {
  at = time;
  for (const each of lanes) shown(each, each.frames.findLastIndex((frame) => frame.at <= at));
  $("race-clock").value = (1000 * at) / end();
  $("race-is").textContent = `${(at / 1000).toFixed(2)} s`;
}

function shown(each, last) {
  const over = each.record !== null && last === each.frames.length - 1;
  if (last === each.shown && !over) return;
  each.shown = last;
  const frame = each.frames[last], { written, hidden } = frame ? counts(frame) : { written: 0, hidden: 1 };
  each.done.firstChild.style.width = `${(100 * written) / Math.max(1, written + hidden)}%`;
  each.text.replaceChildren(...(frame?.tokens ?? []).flatMap((token) => {
    const [space, word] = parted(token.piece);
    return [space, make("span", { class: classes({ ...token, look: over && token.look === "new" ? "settled" : token.look }) }, word)];
  }));
  if (each.wrong) return;
  const { record } = each;
  each.note.textContent = over ? `done after ${(frame.at / 1000).toFixed(2)} s: ${record.nfe.toFixed(0)} network calls, ${perCall(record).toFixed(1)} × autoregressive, ${(record.new_tokens / Math.max(1e-9, record.seconds)).toFixed(0)} tokens per second`
    : `${written} tokens written, ${hidden} left`;
}

async function start() {
  race += 1;
  const mine = race, begun = performance.now();
  $("race").replaceChildren();
  $("race-time").hidden = false;
  lanes = [...$("rivals").children].map(lane);
  await Promise.all(lanes.map((each) => write(each, begun, mine)));
  if (mine !== race) return;
  lanes.forEach((each) => { each.shown = -2; });
  show(end());
}

// `same`: the models that know the words of the first one, which the writers get at first.
export function setUp(knownModels, knownSamplers, same) {
  [models, samplers, mates] = [knownModels, knownSamplers, same];
  for (let i = 0; i < LEAST; i += 1) rival();
  $("more").addEventListener("click", rival);
  const player = new Player($("race-play"), { from: () => { if (at >= end()) show(0); }, next: (passed) => { show(Math.min(end(), at + passed)); return at < end(); } });
  $("race-clock").addEventListener("input", () => { player.pause(); show((+$("race-clock").value / 1000) * end()); });
  $("compare-form").addEventListener("submit", (event) => { event.preventDefault(); player.pause(); start(); });
}
