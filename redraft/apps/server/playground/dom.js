// Small helpers. Text from a model only ever becomes textContent.

export const $ = (id) => document.getElementById(id);

function filled(found, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false && value !== undefined) found.setAttribute(name, value === true ? "" : value);
  }
  found.append(...children);
  return found;
}

export const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

export const draw = (tag, attributes = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

export const options = (values, chosen) => values.map((value) => {
  const [name, text] = Array.isArray(value) ? value : [value, value];
  return make("option", { value: name, selected: name === chosen }, text);
});

// What fields hold: words between commas, a number or nothing.
export const words = (id) => $(id).value.split(",").map((word) => word.trim()).filter(Boolean);
export const number = (id) => ($(id).value === "" ? undefined : +$(id).value);

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

// The output beside a slider follows it.
export function follow(id, spell) {
  const tell = () => { $(`${id}-is`).textContent = spell(+$(id).value); };
  $(id).addEventListener("input", tell);
  tell();
}

// A bar that shows a share; the number beside it says the same.
export function bar(share) {
  const found = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
  found.firstChild.style.width = `${100 * share}%`;
  return found;
}

// How wide words are in the font of an element, in pixels.
const pen = document.createElement("canvas").getContext("2d");
export function ruler(element) {
  pen.font = getComputedStyle(element).font;
  return (text) => pen.measureText(text.trim()).width;
}

// A number between 0 and 1 that depends on its arguments alone.
export function chance(seed, place) {
  let h = (seed * 2654435761 + place * 40503 + 12345) >>> 0;
  h = Math.imul(h ^ (h >>> 15), 2246822519) >>> 0;
  h = Math.imul(h ^ (h >>> 13), 3266489917) >>> 0;
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}

export function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Told to those who do not see the page.
export const announce = (text) => { $("announcer").textContent = text; };

// A button that plays and pauses: `next` shows what comes after some milliseconds, and says whether there is more.
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

  look(sign, name) {
    this.button.textContent = sign;
    this.button.setAttribute("aria-label", name);
  }
}
