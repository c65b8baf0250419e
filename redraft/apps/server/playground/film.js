// Makes a GIF of how a text was written: eight colors, one picture per frame, compressed with LZW.

import { later } from "./frames.js";

const COLORS = ["#fbfaf6", "#23262b", "#dcd7ca", "#0b7285", "#f59f00", "#91a7ff", "#62666d", "#ffffff"];
const WIDTH = 640, LINE = 30, MARGIN = 24, FONT = "18px Georgia, serif";
const RGB = COLORS.map((color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16)));

// Masked tokens are as wide as the word to come, so that nothing jumps.
function paint(context, frame, last, height) {
  context.fillStyle = COLORS[0];
  context.fillRect(0, 0, WIDTH, height);
  let x = MARGIN, y = MARGIN + 18;
  frame.tokens.forEach(({ piece, look }, i) => {
    const text = piece ?? ((later(frame, last, i) ?? " three") || " i"), wide = context.measureText(text).width;
    if (x + wide > WIDTH - MARGIN) [x, y] = [MARGIN, y + LINE];
    if (look === "new" && frame !== last) { context.fillStyle = COLORS[4]; context.fillRect(x, y - 17, wide, 23); }
    const space = wide - context.measureText(text.trimStart()).width;
    if (look === "noise") { context.fillStyle = COLORS[2]; context.fillRect(x + space, y - 15, wide - space, 19); }
    context.fillStyle = look === "given" ? COLORS[3] : COLORS[1];
    if (look !== "noise") context.fillText(text, x, y);
    x += wide;
  });
  return y + MARGIN;
}

const nearest = (r, g, b) => RGB.reduce((best, [x, y, z], i) => {
  const far = (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2;
  return far < best[0] ? [far, i] : best;
}, [Infinity, 0])[1];

// The LZW variant of GIF: codes of growing width, packed from the lowest bit.
function compress(pixels, bits) {
  const clear = 1 << bits, out = [];
  let table = new Map(), next = clear + 2, width = bits + 1, buffer = 0, filled = 0;
  const put = (code) => {
    buffer |= code << filled;
    for (filled += width; filled >= 8; filled -= 8) { out.push(buffer & 255); buffer >>>= 8; }
  };
  put(clear);
  let prefix = pixels[0];
  for (let i = 1; i < pixels.length; i += 1) {
    const key = prefix * 256 + pixels[i], code = table.get(key);
    if (code !== undefined) { prefix = code; continue; }
    put(prefix);
    table.set(key, next);
    if (next === 1 << width && width < 12) width += 1;
    next += 1;
    if (next === 4096) { put(clear); table = new Map(); next = clear + 2; width = bits + 1; }
    prefix = pixels[i];
  }
  put(prefix);
  put(clear + 1);
  if (filled) out.push(buffer & 255);
  return out;
}

export function film(frames) {
  const canvas = document.createElement("canvas");
  let context = canvas.getContext("2d");
  context.font = FONT;
  const height = Math.ceil(Math.max(...frames.map((frame) => paint(context, frame, frames.at(-1), 10))));
  [canvas.width, canvas.height] = [WIDTH, height];
  context = canvas.getContext("2d", { willReadFrequently: true });
  context.font = FONT;
  const word = (n) => [n & 255, n >> 8], text = (s) => [...s].map((c) => c.charCodeAt(0));
  const out = [...text("GIF89a"), ...word(WIDTH), ...word(height), 0xf2, 0, 0, ...RGB.flat(), 0x21, 0xff, 11, ...text("NETSCAPE2.0"), 3, 1, 0, 0, 0];
  const memory = new Map();
  frames.forEach((frame, number) => {
    paint(context, frame, frames.at(-1), height);
    const { data } = context.getImageData(0, 0, WIDTH, height), pixels = new Uint8Array(WIDTH * height);
    for (let i = 0; i < pixels.length; i += 1) {
      const key = (data[4 * i] << 16) | (data[4 * i + 1] << 8) | data[4 * i + 2];
      if (!memory.has(key)) memory.set(key, nearest(data[4 * i], data[4 * i + 1], data[4 * i + 2]));
      pixels[i] = memory.get(key);
    }
    const wait = number === frames.length - 1 ? 300 : Math.max(4, Math.round(400 / frames.length));
    out.push(0x21, 0xf9, 4, 0, ...word(wait), 0, 0, 0x2c, 0, 0, 0, 0, ...word(WIDTH), ...word(height), 0, 3);
    const bytes = compress(pixels, 3);
    for (let i = 0; i < bytes.length; i += 255) {
      const part = bytes.slice(i, i + 255);
      out.push(part.length, ...part);
    }
    out.push(0);
  });
  return new Uint8Array([...out, 0x3b]);
}
