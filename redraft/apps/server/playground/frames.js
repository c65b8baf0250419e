// Pure functions on the frames of a trace: the look of each token, when it was written, the confidence of the model.

const HIDDEN = "░░░";
export const STATES = [["given", "given"], ["noise", "not yet written"], ["new", "just written"], ["settled", "written before"], ["changed", "rewritten"], ["inserted", "inserted"]];

// Splits a token into leading white space and the rest; a masked token is a gray word.
export function parted(piece) {
  if (piece === null) return [" ", HIDDEN];
  const word = piece.trimStart();
  return word ? [piece.slice(0, piece.length - word.length), word] : ["", piece];
}

// The position of each token in the previous frame; -1 if it is new. Insertion moves tokens but keeps their order, so
// this is the longest common subsequence.
function origins(frame, before) {
  const now = frame.pieces, was = before.pieces;
  const same = (i, j) => now[i] === was[j] || was[j] === null;
  const table = Array.from({ length: now.length + 1 }, () => new Int32Array(was.length + 1));
  for (let i = now.length - 1; i >= 0; i -= 1) {
    for (let j = was.length - 1; j >= 0; j -= 1) {
      table[i][j] = same(i, j) ? 1 + table[i + 1][j + 1] : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const positions = now.map(() => -1);
  for (let i = 0, j = 0; i < now.length && j < was.length;) {
    if (same(i, j)) positions[i++] = j++;
    else if (table[i + 1][j] >= table[i][j + 1]) i += 1;
    else j += 1;
  }
  return positions;
}

// Adds to a frame what is known of each token: its look, the step at which it was written, how often it had changed, and
// the most likely tokens at that step. `before` is the previous frame, already processed; `moves` if tokens are inserted.
export function seen(frame, before, moves = false) {
  const from = moves && before ? origins(frame, before) : frame.pieces.map((_, i) => i);
  const tops = new Map((frame.alternatives ?? []).map((entry) => [entry.at, entry]));
  const tokens = frame.pieces.map((piece, i) => {
    const old = before?.tokens[from[i]], was = old?.piece;
    const state = { piece, sure: frame.confidence?.[i] ?? null, step: old?.step ?? 0, changes: old?.changes ?? 0, inserted: moves && (old?.inserted ?? Boolean(before)) };
    state.top = tops.get(i)?.top ?? old?.top ?? null;
    if (frame.given[i]) return { ...state, look: "given" };
    if (piece === null) return { ...state, look: "noise" };
    if (!before || (old && was === piece)) return { ...state, look: "settled", step: old?.step ?? frame.step };
    return { ...state, look: "new", step: frame.step, changes: state.changes + (was === null || was === undefined ? 0 : 1) };
  });
  return { ...frame, tokens };
}

// The final token at position i of a frame: null if it is not known, "" where the text will have ended.
export function later(frame, last, i) {
  if (frame.tokens.length < last.tokens.length) return null;  // tokens will be inserted
  return i < last.tokens.length ? last.tokens[i].piece : "";
}

export const classes = ({ look, changes, inserted }) => ["token", look, ...(changes && look !== "noise" ? ["changed"] : []), ...(inserted && look !== "noise" ? ["inserted"] : [])].join(" ");

const mean = (values) => (values.length ? values.reduce((a, b) => a + b) / values.length : null);

// The numbers of a frame: how many tokens are written and masked, and how confident the model was of the written ones.
export function counts(frame) {
  const free = frame.tokens.filter((token) => token.look !== "given"), sure = free.filter((token) => token.look !== "noise" && token.sure != null).map((token) => token.sure);
  const hidden = free.filter((token) => token.look === "noise").length;
  const bits = (frame.alternatives ?? []).map((entry) => entry.entropy).filter((entropy) => entropy != null);
  return { hidden, written: free.length - hidden, masked: hidden / Math.max(1, frame.tokens.length), mean: mean(sure), least: sure.length ? Math.min(...sure) : null, entropy: mean(bits) };
}

// Tokens per network call; an autoregressive model has 1.
export const perCall = (record) => record.new_tokens / record.texts.length / Math.max(1, record.nfe);
