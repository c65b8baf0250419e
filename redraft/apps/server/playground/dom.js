// Small helpers. Text of a model is only ever inserted as textContent.

export const $ = (id) => document.getElementById(id);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

export const options = (values, chosen) => values.map((value) => {
  const [name, text] = Array.isArray(value) ? value : [value, value];
  return make("option", { value: name, selected: name === chosen }, text);
});

// Values of fields: words separated by commas; a number, or undefined if the field is empty.
export const words = (id) => $(id).value.split(",").map((word) => word.trim()).filter(Boolean);
export const number = (id) => ($(id).value === "" ? undefined : +$(id).value);

export const percent = (fraction, digits = 1) => `${(100 * fraction).toFixed(digits)} %`;

// Shows the value of a slider in the output beside it.
export function follow(id, format) {
  const update = () => { $(`${id}-is`).textContent = format(+$(id).value); };
  $(id).addEventListener("input", update);
  update();
}

// A bar that shows a fraction. Screen readers skip it, as the number is beside it.
export function bar(fraction) {
  const track = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
  track.firstChild.style.width = `${100 * fraction}%`;
  return track;
}

// Returns a function that measures text in the font of an element, in pixels.
const pen = document.createElement("canvas").getContext("2d");
export function ruler(element) {
  pen.font = getComputedStyle(element).font;
  return (text) => pen.measureText(text.trim()).width;
}

// A pseudorandom number between 0 and 1, determined by its arguments.
export function chance(seed, index) {
  let h = (seed * 2654435761 + index * 40503 + 12345) >>> 0;
  h = Math.imul(h ^ (h >>> 15), 2246822519) >>> 0;
  h = Math.imul(h ^ (h >>> 13), 3266489917) >>> 0;
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}

export function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Announces a text to screen readers.
export const announce = (text) => { $("announcer").textContent = text; };

// A button that plays and pauses. `from` prepares the start; `next(ms)` advances and returns whether more is left.
export class Player {
  constructor(button, { from, next }) {
    [this.button, this.from, this.next, this.timer] = [button, from, next, null];
    button.addEventListener("click", () => (this.timer === null ? this.play() : this.pause()));
    this.pause();
  }

  play() {
    this.from();
    let before = performance.now();
    this.look("⏸", "Pause");
    this.timer = setInterval(() => {
      const now = performance.now();
      if (!this.next(now - before)) this.pause();
      before = now;
    }, 40);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.look("▶", "Play");
  }

  look(symbol, name) {
    this.button.textContent = symbol;
    this.button.setAttribute("aria-label", name);
  }
}
