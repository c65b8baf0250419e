// Pictures of a whole generation: the order of writing (position × step), and curves over the steps.

import { draw, make } from "./dom.js";
import { counts } from "./frames.js";

const CURVES = [["masked", "still masked"], ["mean", "mean confidence"], ["least", "lowest confidence"], ["entropy", "entropy of written tokens"]];
const SVG = { preserveAspectRatio: "none", role: "img" };

export class Pictures {
  constructor(show) {
    this.strip = draw("svg", { class: "strip", ...SVG, "aria-label": "Order of writing: positions from left to right, steps from top to bottom" });
    this.curves = draw("svg", { class: "curves", viewBox: "0 0 100 100", ...SVG, "aria-label": "Fraction of tokens still masked, mean and lowest confidence, and entropy by step" });
    const at = (event, along, size) => { const box = event.currentTarget.getBoundingClientRect(); return Math.floor(((event[along] - box[along === "clientY" ? "top" : "left"]) / box[size]) * this.frames.length); };
    this.strip.addEventListener("click", (event) => show(at(event, "clientY", "height")));
    this.curves.addEventListener("click", (event) => show(at(event, "clientX", "width")));
    this.first = make("span", {}, "step 0");
    this.last = make("span");
    this.box = make("div", { class: "pictures" },
      make("figure", {}, make("figcaption", {}, "Order of writing: positions →, steps ↓"), this.strip),
      make("figure", {}, make("figcaption", {}, "By step"),
        make("div", { class: "plot" }, make("div", { class: "axis" }, make("span", {}, "100 %"), make("span", {}, "0")), this.curves),
        make("p", { class: "axis steps" }, this.first, this.last)));
    this.keys = make("p", { class: "keys" }, ...CURVES.map(([name, text]) => make("span", { class: `k-${name}`, "data-curve": name }, text)));
  }

  // Draws all frames; `at` is the current one.
  show(frames, at) {
    this.frames = frames;
    const length = Math.max(1, frames.at(-1).tokens.length), cells = [];
    frames.forEach((frame, y) => frame.tokens.slice(0, length).forEach(({ look }, x) => {
      if (look !== "noise") cells.push(draw("rect", { class: look, x, y, width: 1, height: 1 }));
    }));
    this.strip.setAttribute("viewBox", `0 0 ${length} ${frames.length}`);
    this.strip.replaceChildren(...cells, this.now = draw("rect", { class: "now", x: 0, y: at, width: length, height: 1 }));
    this.line = draw("line", { class: "now", y1: 0, y2: 100 });
    this.curves.replaceChildren(draw("line", { class: "half", x1: 0, x2: 100, y1: 50, y2: 50 }), ...this.lines(frames), this.line);
    this.last.textContent = `step ${frames.at(-1).step}`;
    this.move(at);
  }

  lines(frames) {
    const numbers = frames.map(counts), most = Math.max(1, ...numbers.map((each) => each.entropy ?? 0));
    return CURVES.map(([name]) => {
      const points = numbers.map((each, i) => [i, name === "entropy" && each.entropy != null ? each.entropy / most : each[name]]).filter(([, value]) => value != null);
      const key = this.keys.querySelector(`[data-curve=${name}]`);
      key.hidden = !points.length;
      if (name === "entropy") key.textContent = `entropy of written tokens (100 % is ${most.toFixed(1)} bits)`;
      const y = (value) => (98 - 96 * value).toFixed(2);
      if (name === "entropy") return draw("path", { class: name, d: points.map(([i, value]) => `M${this.x(i)} 98V${y(value)}`).join("") });
      return draw("polyline", { class: name, points: points.map(([i, value]) => `${this.x(i)},${y(value)}`).join(" ") });
    });
  }

  x(i) { return ((100 * i) / Math.max(1, this.frames.length - 1)).toFixed(2); }

  move(at) {
    this.now.setAttribute("y", at);
    for (const end of ["x1", "x2"]) this.line.setAttribute(end, this.x(at));
  }
}
