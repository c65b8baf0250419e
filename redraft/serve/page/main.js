// The page: tabs, the models of the server, and what each tab sets up by itself.

import * as answers from "./answers.js";
import { models } from "./api.js";
import * as compare from "./compare.js";
import { $, make, said } from "./dom.js";
import * as exports from "./export.js";
import * as noise from "./noise.js";
import * as write from "./write.js";

const SAMPLERS = ["own", "ancestral", "first-hitting", "any-order", "left-to-right", "confidence", "margin", "entropy", "threshold", "frechet", "entropy-bound", "klass", "revoke"];
const tabs = [...document.querySelectorAll("[role=tab]")];
let known = [];

function open(tab, focus = true) {
  for (const each of tabs) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", chosen);
    each.tabIndex = chosen ? 0 : -1;
    $(each.getAttribute("aria-controls")).hidden = !chosen;
  }
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
  if (focus) tab.focus();
}

tabs.forEach((tab, i) => {
  tab.addEventListener("click", () => open(tab));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to !== undefined) open(tabs[(to + tabs.length) % tabs.length]);
  });
});
const first = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
if (first) open(first, false);

function tell() {
  const about = known.find((each) => each.id === $("model").value)?.diffusion;
  if (!about) return;
  $("status").textContent = `${about.process} noise, ${(about.parameters / 1e6).toFixed(1)} million weights, ${about.sampler.split("(")[0]}`;
  $("label-of").hidden = !about.classes.length;
  $("label").replaceChildren(make("option", { value: "" }, "any"), ...about.classes.map((name) => make("option", { value: name }, name)));
}

async function begin() {
  try {
    known = await models();
  } catch (error) {
    $("status").textContent = `${said(error)}; trying again`;
    $("status").classList.add("bad");
    return setTimeout(begin, 1000);
  }
  $("status").classList.remove("bad");
  const ids = known.map((each) => each.id);
  $("model").append(...ids.map((id) => make("option", { value: id }, id)));
  $("model").addEventListener("change", tell);
  $("sampler").append(...SAMPLERS.map((name) => make("option", { value: name }, name)));
  tell();
  compare.setUp(ids, SAMPLERS);
  document.body.dataset.ready = "yes";
  return undefined;
}

document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target === document.body) { event.preventDefault(); document.querySelector("#written .time button")?.click(); }
});

write.setUp();
answers.setUp();
exports.setUp();
noise.setUp();
begin();
