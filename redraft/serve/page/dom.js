// Small helpers. Text from a model only ever becomes textContent.

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) found.setAttribute(name, value === true ? "" : value);
  }
  found.append(...children);
  return found;
}

export function draw(tag, attributes = {}, ...children) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

// A number between 0 and 1 that depends on its arguments alone.
export function chance(seed, number) {
  let h = (seed * 2654435761 + number * 40503 + 12345) >>> 0;
  h = Math.imul(h ^ (h >>> 15), 2246822519) >>> 0;
  h = Math.imul(h ^ (h >>> 13), 3266489917) >>> 0;
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}

export function said(error) {
  return error.name === "AbortError" ? "stopped" : error.message;
}

export function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
