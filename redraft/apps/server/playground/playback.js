// Playback of a generation: the canvas at any step, details of each token, pictures and numbers.

import { announce, bar, make, percent, Player, ruler } from "./dom.js";
import { classes, counts, later, parted, perCall, seen, STATES } from "./frames.js";
import { Pictures } from "./pictures.js";

const EXACT = { matches: "always", steps: "at each step", model: "exactly" };

export class Playback {
  constructor(container, { editable = false, moves = false, changed = () => {} } = {}) {
    Object.assign(this, { frames: [], at: 0, record: null, pinned: new Set(), marked: new Set(), editable, moves, changed });
    this.canvas = make("p", { class: "text canvas", role: "group", "aria-label": "The text, token by token: arrow keys move, Shift selects, Space pins" });
    this.tip = make("div", { class: "tip", role: "tooltip", hidden: true });
    this.message = make("p", { class: "message", role: "status" }, "Waiting for the first tokens …");
    const button = make("button", { type: "button", class: "round" });
    this.slider = make("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Step", oninput: () => this.show(+this.slider.value) });
    this.output = make("output");
    this.pictures = new Pictures((at) => this.show(at));
    this.numbers = make("dl", { class: "numbers" });
    this.player = new Player(button, { from: () => this.start(), next: (passed) => this.next(passed) });
    const keys = make("p", { class: "keys" }, ...STATES.map(([state, name]) => make("span", { class: `k-${state}`, "data-state": state }, name)));
    this.keys = keys;
    this.box = make("article", { class: "card playback", "aria-label": "Result" }, make("div", { class: "paper" }, this.canvas, this.tip), keys, this.message,
      make("div", { class: "time" }, button, this.slider, this.output), this.pictures.box, this.pictures.keys, this.numbers);
    container.replaceChildren(this.box);
    this.listen();
  }

  listen() {
    const on = (name, act) => this.canvas.addEventListener(name, act);
    on("pointerover", (event) => this.explain(event.target));
    this.box.addEventListener("pointerleave", () => this.hush());
    on("focusin", (event) => this.explain(event.target));
    on("focusout", () => this.hush());
    on("click", (event) => { if (getSelection().isCollapsed) this.pin(event.target); });
    on("keydown", (event) => this.key(event));
  }

  add(frame) {
    this.frames.push(seen(frame, this.frames.at(-1), this.moves));
    this.message.textContent = "";
    this.box.classList.add("begun");
    this.slider.max = this.frames.length - 1;
    this.show(this.frames.length - 1, true);
  }

  finish(record) {
    this.record = record;
    this.message.textContent = record.notes.join(" ");
    this.show(this.frames.length - 1, true);
    announce(`Written: ${record.texts[0].text}`);
  }

  say(message, wrong = false) {
    this.message.textContent = message;
    this.message.classList.toggle("error", wrong);
  }

  get current() { return this.frames[this.at]; }

  get ended() { return this.record !== null && this.at === this.frames.length - 1; }

  get text() { return this.record.texts[0].text; }

  show(at, grown = false) {
    this.at = Math.max(0, Math.min(at, this.frames.length - 1));
    const frame = this.current;
    if (!frame) return;
    this.hush();
    this.wide = ruler(this.canvas);
    this.canvas.replaceChildren(...frame.tokens.flatMap((token, i) => this.token(token, i)));
    this.slider.value = this.at;
    this.output.textContent = `step ${frame.step} of ${this.frames.at(-1).step}`;
    if (grown) this.pictures.show(this.frames, this.at);
    else this.pictures.move(this.at);
    for (const key of this.keys.children) key.hidden = !this.canvas.querySelector(`.${key.dataset.state}`) && ["changed", "inserted"].includes(key.dataset.state);
    this.count(frame);
  }

  token(token, i) {
    const look = this.ended && token.look === "new" ? "settled" : token.look;  // nothing is new any more
    const span = make("span", { class: classes({ ...token, look }), "data-at": i, tabindex: this.editable ? (i ? -1 : 0) : null });
    const [space, word] = parted(token.piece);
    span.textContent = word;
    if (look === "noise") this.widen(span, i);
    if (look === "settled" && token.sure != null) span.style.setProperty("--doubt", (1 - token.sure).toFixed(3));
    span.classList.toggle("pinned", this.pinned.has(this.word(i)));
    span.classList.toggle("marked", this.marked.has(i));
    return [space, span];
  }

  // Makes a masked token as wide as the word to come, once that is known, so that nothing jumps.
  widen(span, i) {
    const piece = this.record && later(this.current, this.frames.at(-1), i);
    if (piece != null) span.style.width = `${this.wide(piece || "i")}px`;
  }

  // The word that token i is part of; null if it is not part of a word.
  word(i) {
    const pieces = this.current.tokens.map((token) => token.piece ?? " "), begin = pieces.slice(0, i).join("").length;
    const inside = begin + pieces[i].length - pieces[i].trimStart().length;
    for (const match of pieces.join("").matchAll(/[\p{L}\p{N}_]+/gu)) if (match.index <= inside && inside < match.index + match[0].length) return match[0];
    return null;
  }

  explain(target) {
    const i = target?.dataset?.at;
    if (i === undefined) return;
    const { piece, look, step, sure, changes, top } = this.current.tokens[i];
    const name = piece === null ? `Position ${+i + 1}` : `“${piece.trim()}”`;
    const state = look === "given" ? "given" : piece === null ? "not yet written" : `written at step ${step}${sure == null ? "" : `, confidence ${percent(sure)}`}${changes ? `, changed ${changes} time${changes > 1 ? "s" : ""}` : ""}`;
    const rows = look === "given" || piece === null ? [] : this.likely(piece, sure, top ?? []);
    this.tip.replaceChildren(make("p", {}, make("b", {}, name), ` ${state}`), ...(rows.length ? [make("p", { class: "small" }, "Most likely at that step"), make("ol", {}, ...rows)] : []));
    this.tip.hidden = false;
    target.setAttribute("aria-description", this.tip.textContent);
    const paper = this.canvas.parentElement, left = Math.min(target.offsetLeft, paper.clientWidth - this.tip.offsetWidth);
    Object.assign(this.tip.style, { left: `${Math.max(0, left)}px`, top: `${target.offsetTop + target.offsetHeight + 6}px` });
  }

  // The most likely tokens with their probabilities. The written one is highlighted, and added last if it is not among them.
  likely(piece, sure, top) {
    const same = (text) => text.trim() === piece.trim();
    const all = !top.length || sure == null || top.some(([text]) => same(text)) ? top : [...top, [piece, sure]];
    return all.map(([text, p]) => make("li", {}, make("span", { class: same(text) ? "chosen" : "" }, text.trim() || (text ? "␣" : "end of the text")), bar(p), make("span", { class: "share" }, percent(p))));
  }

  hush() { this.tip.hidden = true; }

  pin(target) {
    const i = target?.dataset?.at;
    if (!this.editable || i === undefined || !this.record) return;
    const word = this.word(+i);
    if (word === null) return;
    if (!this.pinned.delete(word)) this.pinned.add(word);
    this.refresh();
  }

  // Selects these tokens for rewriting.
  mark(positions) {
    this.marked = new Set(positions);
    this.refresh();
  }

  refresh() {
    for (const token of this.canvas.querySelectorAll(".token")) {
      token.classList.toggle("pinned", this.pinned.has(this.word(+token.dataset.at)));
      token.classList.toggle("marked", this.marked.has(+token.dataset.at));
    }
    this.changed();
  }

  key(event) {
    const tokens = [...this.canvas.querySelectorAll(".token")], at = tokens.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (event.key === "Escape") this.hush();
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.pin(event.target); }
    if (at < 0 || tokens[to] === undefined) return;
    event.preventDefault();
    if (event.shiftKey) this.mark([...this.marked, at, to]);
    tokens[at].tabIndex = -1;
    tokens[to].tabIndex = 0;
    tokens[to].focus();
  }

  count(frame) {
    const { written, hidden } = counts(frame), record = this.ended ? this.record : null;
    const parts = [["tokens written", written], ...(hidden ? [["still masked", hidden]] : [])];
    const calls = record?.nfe ?? frame.nfe;
    if (calls != null) parts.push(["network calls", calls.toFixed(0)]);
    const seconds = record?.seconds ?? frame.seconds;
    if (seconds != null) parts.push(["seconds", seconds.toFixed(2)], ["tokens per second", (written / Math.max(1e-9, seconds)).toFixed(0)]);
    const grows = this.frames.some(({ tokens }) => tokens.some(({ look }) => look === "noise"));  // else all positions have tokens from the start
    if (calls && (record || grows)) parts.push(["× autoregressive", (record ? perCall(record) : written / calls).toFixed(2), "Tokens per network call; an autoregressive model has 1"]);
    if (record) parts.push(["seed", record.seed]);
    if (record && record.exactness !== "free") parts.push(["constraints hold", EXACT[record.exactness] ?? record.exactness]);
    if (record && record.cache !== "none") parts.push(["cache", record.cache]);
    this.numbers.replaceChildren(...parts.map(([name, value, title]) => make("div", { title }, make("dt", {}, name), make("dd", {}, String(value)))));
  }

  start() {
    this.passed = 0;
    if (this.at >= this.frames.length - 1) this.show(0);
  }

  // Plays all steps in four seconds, but shows each for at least 60 ms.
  next(passed) {
    this.passed += passed;
    const each = Math.max(60, 4000 / this.frames.length), steps = Math.floor(this.passed / each);
    this.passed -= steps * each;
    if (steps) this.show(this.at + steps);
    return this.at < this.frames.length - 1;
  }
}
