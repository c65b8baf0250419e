// What frames of a trace say, as plain functions: how each token looks, when it was written, how sure the model is.

const HIDDEN = "░░░";
export const STATES = [["given", "given"], ["noise", "not yet written"], ["new", "just written"], ["settled", "written before"], ["changed", "rewritten"], ["inserted", "inserted"]];

// The white space before a token, and the token; a hidden one is a grey word.
export function parted(piece) {
  if (piece === null) return [" ", HIDDEN];
  const word = piece.trimStart();
  return word ? [piece.slice(0, piece.length - word.length), word] : ["", piece];
}

// For each token of a frame, where it stood in the frame before; -1 if it was not there. Insertion moves tokens, but never
// past each other: the longest common subsequence.
function origins(frame, before) {
  const now = frame.pieces, was = before.pieces;
  const alike = (i, j) => now[i] === was[j] || was[j] === null;
  const table = Array.from({ length: now.length + 1 }, () => new Int32Array(was.length + 1));
  for (let i = now.length - 1; i >= 0; i -= 1) {
    for (let j = was.length - 1; j >= 0; j -= 1) {
      table[i][j] = alike(i, j) ? 1 + table[i + 1][j + 1] : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const found = now.map(() => -1);
  for (let i = 0, j = 0; i < now.length && j < was.length;) {
    if (alike(i, j)) found[i++] = j++;
    else if (table[i + 1][j] >= table[i][j + 1]) i += 1;
    else j += 1;
  }
  return found;
}

// What is known of each token of a frame: its look, the step it was written at, how often it was something else before,
// the likeliest tokens of that moment. `before` is the frame before, already seen; `moves`: tokens are inserted.
export function seen(frame, before, moves = false) {
  const from = moves && before ? origins(frame, before) : frame.pieces.map((_, i) => i);
  const tops = new Map((frame.alternatives ?? []).map((each) => [each.at, each]));
  const tokens = frame.pieces.map((piece, i) => {
    const old = before?.tokens[from[i]], was = old?.piece;
    const told = { piece, sure: frame.confidence?.[i] ?? null, step: old?.step ?? 0, changes: old?.changes ?? 0, inserted: moves && (old?.inserted ?? Boolean(before)) };
    told.top = tops.get(i)?.top ?? old?.top ?? null;
    if (frame.given[i]) return { ...told, look: "given" };
    if (piece === null) return { ...told, look: "noise" };
    if (!before || (old && was === piece)) return { ...told, look: "settled", step: old?.step ?? frame.step };
    return { ...told, look: "new", step: frame.step, changes: told.changes + (was === null || was === undefined ? 0 : 1) };
  });
  return { ...frame, tokens };
}

// What will stand at place i of a frame, if that can be known: null, or nothing where the text will have ended.
export function later(frame, last, i) {
  if (frame.tokens.length < last.tokens.length) return null;  // tokens will be inserted
  return i < last.tokens.length ? last.tokens[i].piece : "";
}

export const classes = ({ look, changes, inserted }) => ["token", look, ...(changes && look !== "noise" ? ["changed"] : []), ...(inserted && look !== "noise" ? ["inserted"] : [])].join(" ");

const mean = (values) => (values.length ? values.reduce((a, b) => a + b) / values.length : null);

// The numbers of a frame: how many tokens are written and hidden, how sure the model was of those written.
export function counts(frame) {
  const free = frame.tokens.filter((token) => token.look !== "given"), sure = free.filter((token) => token.look !== "noise" && token.sure != null).map((token) => token.sure);
  const hidden = free.filter((token) => token.look === "noise").length;
  const bits = (frame.alternatives ?? []).map((each) => each.entropy).filter((each) => each != null);
  return { hidden, written: free.length - hidden, masked: hidden / Math.max(1, frame.tokens.length), mean: mean(sure), least: sure.length ? Math.min(...sure) : null, entropy: mean(bits) };
}

// Tokens per network call: an autoregressive model has one.
export const perCall = (record) => record.new_tokens / record.texts.length / Math.max(1, record.nfe);
