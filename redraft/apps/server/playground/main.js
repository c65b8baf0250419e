// The page: its tabs and the models of the server. Each tab sets itself up.

import * as answers from "./answers.js";
import { models, errorMessage } from "./api.js";
import * as compare from "./compare.js";
import { $, options } from "./dom.js";
import * as examples from "./examples.js";
import * as exports from "./export.js";
import * as noise from "./noise.js";
import * as structured from "./structured.js";
import * as write from "./write.js";

const SAMPLERS = ["own", "ancestral", "first-hitting", "any-order", "required-first", "left-to-right", "confidence", "margin", "entropy", "threshold", "frechet", "entropy-bound", "klass", "revoke", "gibbs", "remdm", "star", "ddim", "ode-euler", "heun", "dpm++", "dpm++-sde", "euler-maruyama"];
const NAMED = SAMPLERS.map((name) => [name, name === "own" ? "the model’s own" : name]);
const tabs = [...document.querySelectorAll("[role=tab]")];
const panel = (tab) => tab.getAttribute("aria-controls");
let known = [];

function open(tab, focus = true) {
  for (const each of tabs) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", chosen);
    each.tabIndex = chosen ? 0 : -1;
    $(panel(each)).hidden = !chosen;
  }
  history.replaceState(null, "", `#${panel(tab)}`);
  if (focus) tab.focus();
  if (known.length) tab.dispatchEvent(new Event("shown"));
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to !== undefined) { event.preventDefault(); open(tabs[(to + tabs.length) % tabs.length]); }
  });
});

function status(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

function adapt() {
  const about = known.find((each) => each.id === $("model").value).diffusion, size = about.parameters;
  status(`${about.process} noise · ${size < 1e5 ? size.toLocaleString("en") : `${(size / 1e6).toFixed(1)} million`} weights · ${about.vocab.toLocaleString("en")} tokens`);
  const kind = examples.adapt(about);
  write.adapt(kind, about);
  structured.adapt(kind, about);
  noise.adapt(about);
}

async function begin() {
  try {
    known = await models();
  } catch (error) {
    status(error.status === 503 ? "The model is loading …" : errorMessage(error), error.status !== 503);
    return error.status === 401 ? undefined : setTimeout(begin, 1000);  // without the key, trying again is pointless
  }
  const ids = known.map((each) => each.id);
  $("model").replaceChildren(...options(ids));
  $("model").addEventListener("change", adapt);
  $("sampler").replaceChildren(...options(NAMED));
  const kind = (each) => examples.kindOf(each.diffusion);
  compare.setUp(ids, NAMED, known.filter((each) => kind(each) === kind(known[0])).map((each) => each.id));
  adapt();
  for (const button of document.querySelectorAll("button.main, #edit-it")) button.disabled = false;
  document.body.dataset.ready = "yes";
  open(tabs.find((tab) => `#${panel(tab)}` === location.hash) ?? tabs[0], false);
  return undefined;
}

document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target === document.body) { event.preventDefault(); document.querySelector("[role=tabpanel]:not([hidden]) .time button")?.click(); }
});

for (const part of [write, answers, structured, exports, noise]) part.setUp();
for (const button of document.querySelectorAll("button.main, #edit-it")) button.disabled = true;
begin();
