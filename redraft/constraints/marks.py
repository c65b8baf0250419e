"""A rule laid on a canvas: which columns obey it, where the text may end, and what given text leaves possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from redraft.constraints.program import Bools, Program, Sums
from redraft.constraints.rules import Length, Rule, compiled
from redraft.constraints.spelling import spelling
from redraft.constraints.tokens import Automaton, Unspeakable, tokens_of
from redraft.text import Tokenizer
from redraft.types import Canvas, Vocab


@dataclass(frozen=True, eq=False)
class Marked:
    """One rule on some columns of each row; it travels in `Context.marks`, row by row and window by window."""

    program: Program
    span: Tensor  # (B, L) bool: columns that obey the rule, together and from left to right
    may_end: Tensor  # (B, L) bool: the end token may stand here
    must_end: Tensor  # (B, L) bool: nothing but end tokens may stand here
    given: Tensor  # (B, L) bool: tokens that were given
    state: Tensor  # (B,) the state before the first column
    goals: Tensor  # (B, S) bool: states in which the last column may leave

    @property
    def automaton(self) -> Automaton:
        return self.program.automaton

    def rows(self, index: Tensor) -> Marked:
        """The same for some rows of the batch."""
        names = ("span", "may_end", "must_end", "given", "state", "goals")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    def window(self, z: Tensor, lo: int, hi: int) -> Marked:
        """Columns lo..hi of rows z (B, L) that are finished to the left; to the right only what was given counts.

        So a window is left in a state from which the text can still come to an end in the columns that follow.
        """
        names = ("span", "may_end", "must_end", "given")
        left, part, right = (
            {name: getattr(self, name)[:, columns] for name in names}
            for columns in (slice(lo), slice(lo, hi), slice(hi, None))
        )
        state = replace(self, **left).run(z[:, :lo])
        after = replace(self, **right)
        goals = after.possible(after.allowed(z[:, hi:], after.given))
        return replace(self, **part, state=state, goals=goals)

    def run(self, z: Tensor) -> Tensor:
        """(B,) the state behind finished tokens z (B, L)."""
        after, states = self.automaton.after, self.automaton.states
        kinds, span, state = self.automaton.class_of[_numpy(z)], _numpy(self.span), _numpy(self.state)
        table = np.column_stack([np.vstack([after, np.full((1, after.shape[1]), states)]), np.full(states + 1, states)])
        for i in range(z.shape[1]):
            state = np.where(span[:, i], table[state, kinds[:, i]], state)  # class −1 is the last column
        if (state == states).any():
            raise ValueError("the text written so far does not obey the rule any more; this should never happen")
        return torch.from_numpy(state).to(self.state.device)

    def allowed(self, z: Tensor, known: Tensor) -> Bools:
        """(B, L, C) which classes may stand where: where `known` (B, L), that of the token alone."""
        automaton, kinds = self.automaton, np.arange(self.automaton.classes)
        allowed = np.ones((*z.shape, automaton.classes), np.bool_)
        if automaton.end is not None:
            over = np.isin(kinds, [automaton.end, *automaton.filler])
            allowed &= _numpy(self.may_end)[..., None] | (kinds != automaton.end)
            allowed &= ~_numpy(self.must_end)[..., None] | over
        own = automaton.class_of[_numpy(z)][..., None] == kinds
        return allowed & (own | ~_numpy(known)[..., None])

    def possible(self, allowed: Bools) -> Tensor:
        """(B, S) bool: from which states before the first column a goal can be reached."""
        values, _ = self.program.backward(allowed.astype(np.float64), _numpy(self.span), _numpy(self.goals), Sums)
        return torch.from_numpy(values[0] > 0).to(self.state.device)


@dataclass(frozen=True, eq=False)
class AllMarked:
    """Rules on columns of their own."""

    parts: tuple[Marked, ...]

    def rows(self, index: Tensor) -> AllMarked:
        return AllMarked(tuple(part.rows(index) for part in self.parts))

    def window(self, z: Tensor, lo: int, hi: int) -> AllMarked:
        return AllMarked(tuple(part.window(z, lo, hi) for part in self.parts))


def constrain(canvas: Canvas, rule: Rule, tokenizer: Tokenizer, where: Tensor | None = None) -> Canvas:
    """The canvas with a rule on it, for a denoiser that `Constrained` makes; a contradiction is an error at once.

    canvas: tokens to write and given ones, as `model.canvas` and `model.infill` make it.
    rule: what the text must be: Regex, Json, OneOf, Banned, Required, Length, or several of them joined by &.
    tokenizer: that of the model.
    where: (B, L) bool, the columns that the rule is about, for example a `hole`; None: the whole text, given tokens
        included. Columns at the end of a row may end early, by the end token; others are filled with text.
    """
    if canvas.z.dim() != 2 or canvas.open is not None:
        raise ValueError("rules need tokens at fixed places: neither vectors nor insertion models can obey them yet")
    vocab = tokenizer.vocab
    text = _text(canvas, vocab)
    span = text if where is None else where & text
    before = canvas.context.marks
    held = before.parts if isinstance(before, AllMarked) else ()
    if any(bool((part.span & span).any()) for part in held):
        raise ValueError("two rules are about the same columns; join them by &, or give them different holes")
    program = _program(rule, tokenizer, _begins(span, text, tokenizer))
    marked = _laid(program, rule.length, span, canvas, vocab)
    _require_possible(marked, rule, canvas, tokenizer)
    return replace(canvas, context=replace(canvas.context, marks=AllMarked((*held, marked))))


def hole(canvas: Canvas, number: int = 0) -> Tensor:
    """(B, L) bool: the columns of a hole of each row, holes being counted from 0 and divided by given tokens."""
    free = ~canvas.fixed
    begins = free & ~torch.nn.functional.pad(free, (1, 0))[:, :-1]
    found = free & (begins.cumsum(-1) == number + 1)
    if not bool(found.any(-1).all()):
        raise ValueError(f"hole {number} of a row with {int(begins.sum(-1).min())} holes; they are counted from 0")
    return found


@lru_cache(64)
def _program(rule: Rule, tokenizer: Tokenizer, text_begins: bool) -> Program:
    try:
        return Program(tokens_of(compiled(rule), spelling(tokenizer), tokenizer.vocab, text_begins))
    except Unspeakable:
        raise ValueError(f"the model has no tokens that spell a text which obeys {rule}; use its words") from None


def _begins(span: Tensor, text: Tensor, tokenizer: Tokenizer) -> bool:
    """Whether the columns are at the beginning of their texts; some tokenizers write no space there."""
    begins = (span & text & (text.cumsum(-1) == 1)).any(-1)
    spelled = spelling(tokenizer)
    if spelled.at(True) != spelled.at(False) and bool(begins.any()) and not bool(begins.all()):
        raise ValueError("the rule is about the beginning of some texts and the middle of others; use two canvases")
    return bool(begins.any())


def _text(canvas: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: columns of the text: behind the start token, which ends a source, and no padding."""
    text = torch.ones_like(canvas.fixed) if canvas.context.pad is None else ~canvas.context.pad
    if vocab.bos is None:
        return text
    starts = canvas.fixed & (canvas.z == vocab.bos)
    return text & (starts.flip(-1).cumsum(-1).flip(-1) == 0)


def _laid(program: Program, length: Length, span: Tensor, canvas: Canvas, vocab: Vocab) -> Marked:
    """Where the text may end: only behind the last given token, and only if no other text follows."""
    given = canvas.fixed if canvas.context.pad is None else canvas.fixed & ~canvas.context.pad
    others = ~span if canvas.context.pad is None else ~span & ~canvas.context.pad
    follows = (others | (span & given)).flip(-1).cumsum(-1).flip(-1) > 0
    written = span.cumsum(-1) - span.long()  # tokens before this one
    may_end = span & ~follows & (written >= length.least) & (vocab.eos is not None)
    must_end = span & (written >= (span.shape[1] if length.most is None else length.most))
    open_ended = may_end.any(-1)
    goals = torch.from_numpy(np.stack([program.automaton.goals(bool(row)) for row in open_ended])).to(span.device)
    goals &= (~(span.sum(-1) < length.least))[:, None] | (torch.arange(goals.shape[1]) == goals.shape[1] - 1)
    return Marked(program, span, may_end, must_end, given, torch.zeros(len(span), dtype=torch.int64), goals)


def _require_possible(marked: Marked, rule: Rule, canvas: Canvas, tokenizer: Tokenizer) -> None:
    """An error that says why, if no text obeys the rule in these columns beside what is given."""
    possible = marked.possible(marked.allowed(canvas.z, marked.given))
    wrong = ~possible.gather(1, marked.state[:, None]).squeeze(1)
    if not bool(wrong.any()):
        return
    row = int(wrong.int().argmax())
    span, given = marked.span[row], marked.given[row]
    room, least = int(span.sum()), marked.program.automaton.shortest()
    least = max(least, rule.length.least)
    where = f"row {row}: " if len(wrong) > 1 else ""
    if least > room:
        raise ValueError(f"{where}a text that obeys {rule} has at least {least} tokens, but there is room for {room}")
    if bool((span & given).any()):
        said = tokenizer.decode(canvas.z[row][span & given].tolist())
        raise ValueError(f"{where}no text of {room} tokens with the given {said!r:.60} obeys {rule}")
    most = rule.length.most
    full = "" if bool(marked.may_end[row].any()) else ", and the text cannot end before them"
    limit = "" if most is None else f", at most {most} of them text"
    raise ValueError(f"{where}no text of {room} tokens obeys {rule}{limit}{full}; ask for another number of tokens")


def _numpy(a: Tensor) -> np.ndarray:
    return a.detach().cpu().numpy()
