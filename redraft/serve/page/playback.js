// A text being written: its canvas at any step, the strip position × step, curves, numbers.

import { draw, make } from "./dom.js";

const HIDDEN = "░";
const STATES = [["given", "given"], ["noise", "not yet written"], ["new", "just written"], ["settled", "written before; the fainter, the surer"]];

// The white space before a token, and the token; a hidden one is a grey word.
export function parted(piece) {
  if (piece === null) return [" ", HIDDEN.repeat(3)];
  const word = piece.trimStart();
  return word ? [piece.slice(0, piece.length - word.length), word] : ["", piece];
}

// How each token of a frame looks, given the frame before.
export function states(frame, before) {
  return frame.pieces.map((piece, i) => {
    if (frame.given[i]) return "given";
    if (piece === null) return "noise";
    return before && before.pieces[i] !== piece ? "new" : "settled";
  });
}

// When each token of the last frame took its value, and whether it was written before as something else.
export function history(frames) {
  const length = Math.max(0, ...frames.map((frame) => frame.pieces.length));
  return Array.from({ length }, (_, i) => {
    let step = 0, changes = 0, now;
    for (const frame of frames) {
      const piece = frame.pieces[i];
      if (piece === now) continue;
      if (now !== undefined && now !== null && piece !== null) changes += 1;
      if (piece !== null) step = frame.step;
      now = piece;
    }
    return { step, changes };
  });
}

export class Playback {
  constructor(place, { editable = false, title = "" } = {}) {
    this.frames = [];
    this.record = null;
    this.pinned = new Set();
    this.editable = editable;
    this.timer = null;
    this.canvas = make("p", { class: "text canvas", "aria-live": "off" });
    this.tip = make("p", { class: "tip", role: "status" });
    this.play = make("button", { type: "button", "aria-label": "Play", onclick: () => this.toggle() }, "▶");
    this.slider = make("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step", oninput: () => this.show(+this.slider.value) });
    this.output = make("output");
    this.strip = draw("svg", { class: "strip", preserveAspectRatio: "none", role: "img", "aria-label": "position by step" });
    this.curves = draw("svg", { class: "curves", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": "masked tokens, mean and least confidence by step" });
    this.numbers = make("p", { class: "numbers" });
    const keys = make("p", { class: "keys" }, ...STATES.map(([state, name]) => make("span", { class: `k-${state}` }, name)),
      make("span", { class: "k-masked" }, "still masked"), make("span", { class: "k-mean" }, "mean confidence"), make("span", { class: "k-least" }, "least"));
    this.strip.addEventListener("click", (event) => {
      const box = this.strip.getBoundingClientRect();
      this.show(Math.round(((event.clientY - box.top) / box.height) * (this.frames.length - 1)));
    });
    this.canvas.addEventListener("pointerover", (event) => this.explain(event.target));
    this.canvas.addEventListener("focusin", (event) => this.explain(event.target));
    this.canvas.addEventListener("click", (event) => this.pin(event.target));
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.pin(event.target); }
    });
    const pictures = make("div", { class: "pictures" },
      make("figure", {}, make("figcaption", {}, "Order of writing: places from left to right, steps from top to bottom"), this.strip),
      make("figure", {}, make("figcaption", {}, "By step"), this.curves));
    this.box = make("article", { class: "card playback" }, ...(title ? [make("h2", {}, title)] : []), this.canvas, this.tip,
      make("div", { class: "time" }, this.play, this.slider, this.output), pictures, keys, this.numbers);
    place.replaceChildren(this.box);
  }

  add(frame) {
    this.frames.push(frame);
    this.slider.max = this.frames.length - 1;
    this.show(this.frames.length - 1);
  }

  finish(record) {
    this.record = record;
    this.show(this.frames.length - 1);
  }

  fail(message) {
    this.tip.textContent = message;
    this.tip.classList.add("error");
  }

  get current() { return this.frames[this.at]; }

  show(at) {
    this.at = Math.max(0, Math.min(at, this.frames.length - 1));
    const frame = this.current;
    if (!frame) return;
    const looks = states(frame, this.frames[this.at - 1]);
    const past = history(this.frames.slice(0, this.at + 1));
    this.canvas.replaceChildren(...frame.pieces.flatMap((piece, i) => this.token(frame, looks[i], past[i], i)));
    this.slider.value = this.at;
    this.output.textContent = `step ${frame.step} of ${this.frames.at(-1).step}`;
    this.sketch();
    this.count(frame);
  }

  token(frame, look, past, i) {
    const piece = frame.pieces[i], sure = frame.confidence?.[i];
    const found = make("span", { class: `token ${look}`, "data-at": i, ...(this.editable ? { tabindex: 0 } : {}) });
    if (past.changes) found.classList.add("changed");
    if (this.pinned.has(i)) found.classList.add("pinned");
    const [space, word] = parted(piece);
    found.textContent = word;
    if (look === "settled" && sure != null) found.style.backgroundColor = `rgb(var(--sure) / ${((1 - sure) * 0.45).toFixed(3)})`;
    return [space, found];
  }

  explain(target) {
    const i = target?.dataset?.at;
    if (i === undefined) return;
    const frame = this.current, piece = frame.pieces[i], sure = frame.confidence?.[i];
    const past = history(this.frames.slice(0, this.at + 1))[i];
    this.tip.classList.remove("error");
    this.tip.textContent = frame.given[i] ? `“${piece.trim()}” was given` : piece === null ? `place ${+i + 1}: not yet written`
      : `“${piece.trim()}”: written at step ${past.step}${sure == null ? "" : `, ${(100 * sure).toFixed(1)} % sure`}${past.changes ? `, after ${past.changes} other${past.changes > 1 ? "s" : ""}` : ""}`;
  }

  pin(target) {
    const i = target?.dataset?.at;
    if (!this.editable || i === undefined || !this.record || this.current.pieces[i] === null) return;
    if (!this.pinned.delete(+i)) this.pinned.add(+i);
    this.show(this.at);
    this.canvas.querySelector(`[data-at="${i}"]`)?.focus();
  }

  sketch() {
    const seen = this.record ? this.frames.slice(-1) : this.frames, steps = this.frames.length;
    const length = Math.max(1, ...seen.map((frame) => frame.pieces.length));
    this.strip.setAttribute("viewBox", `0 0 ${length} ${steps}`);
    const cells = [];
    this.frames.forEach((frame, y) => states(frame, this.frames[y - 1]).slice(0, length).forEach((look, x) => {
      if (look !== "noise") cells.push(draw("rect", { class: look, x, y, width: 1, height: 1 }));
    }));
    this.strip.replaceChildren(...cells, draw("rect", { class: "now", x: 0, y: this.at, width: length, height: 1 }));
    const last = Math.max(1, steps - 1), x = (i) => ((100 * i) / last).toFixed(2), y = (share) => (98 - 96 * share).toFixed(2);
    const of = (value) => this.frames.map((frame, i) => [i, value(frame)]).filter(([, v]) => v != null).map(([i, v]) => `${x(i)},${y(v)}`).join(" ");
    const sure = (frame) => (frame.confidence ?? []).filter((p, i) => p != null && !frame.given[i] && frame.pieces[i] !== null);
    this.curves.replaceChildren(
      draw("polyline", { class: "masked", points: of((f) => f.pieces.filter((p) => p === null).length / Math.max(1, f.pieces.length)) }),
      draw("polyline", { class: "mean", points: of((f) => { const s = sure(f); return s.length ? s.reduce((a, b) => a + b) / s.length : null; }) }),
      draw("polyline", { class: "least", points: of((f) => { const s = sure(f); return s.length ? Math.min(...s) : null; }) }),
      draw("line", { class: "now", x1: x(this.at), x2: x(this.at), y1: 0, y2: 100 }));
  }

  count(frame) {
    const written = frame.pieces.filter((piece, i) => piece !== null && !frame.given[i]).length;
    const parts = [["tokens written", written]];
    const record = this.record;
    if (record && this.at === this.frames.length - 1) {
      const each = record.new_tokens / Math.max(1, record.texts.length);
      parts.push(["network calls", record.nfe.toFixed(0)], ["seconds", record.seconds.toFixed(2)], ["tokens a second", (record.new_tokens / Math.max(1e-9, record.seconds)).toFixed(0)],
        ["× the tokens per call of an autoregressive model", (each / Math.max(1, record.nfe)).toFixed(2)], ["seed", record.seed]);
      if (record.exactness !== "free") parts.push(["obeys the rules", { matches: "always", steps: "each step exactly", model: "exactly" }[record.exactness] ?? record.exactness]);
      if (record.cache !== "none") parts.push(["cache", record.cache]);
      this.tip.textContent = record.notes.join(" ");
    }
    this.numbers.replaceChildren(...parts.map(([name, value]) => make("span", {}, make("b", {}, String(value)), ` ${name}`)));
  }

  toggle() {
    if (this.timer !== null) return this.pause();
    if (this.at >= this.frames.length - 1) this.show(0);
    this.play.textContent = "⏸";
    this.play.setAttribute("aria-label", "Pause");
    this.timer = setInterval(() => (this.at >= this.frames.length - 1 ? this.pause() : this.show(this.at + 1)), Math.max(30, 3000 / this.frames.length));
    return undefined;
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "▶";
    this.play.setAttribute("aria-label", "Play");
  }
}
