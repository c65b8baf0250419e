"""A rule laid on a canvas: which columns obey it, where the text may end, and what given text leaves possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import Tokenizer
from redraft.core.vocab import Vocab
from redraft.decoding.constraints.automaton import _NotTokenizable, _token_automaton, _TokenAutomaton
from redraft.decoding.constraints.dynamic_program import _MAX_PRODUCT, _SUM_PRODUCT, _AutomatonProgram, _Bools
from redraft.decoding.constraints.rules import Length, Rule, compile_rule
from redraft.decoding.constraints.token_bytes import _token_bytes


@dataclass(frozen=True, eq=False)
class PlacedRule:
    """One rule on some columns of each row; it travels in `Context.marks`, row by row and window by window."""

    program: _AutomatonProgram
    span: Tensor  # (B, L) bool: columns that obey the rule, together and from left to right
    may_end: Tensor  # (B, L) bool: the end token may stand here
    must_end: Tensor  # (B, L) bool: nothing but end tokens may stand here
    given: Tensor  # (B, L) bool: tokens that were given
    tokens: Tensor  # (B, L) ids of those that were given
    state: Tensor  # (B,) the state before the first column
    goals: Tensor  # (B, S) bool: states in which the last column may leave

    @property
    def automaton(self) -> _TokenAutomaton:
        return self.program.automaton

    def rows(self, index: Tensor) -> PlacedRule:
        """The same for some rows of the batch."""
        names = ("span", "may_end", "must_end", "given", "tokens", "state", "goals")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    def window(self, z: Tensor, column: Tensor) -> PlacedRule:
        """Columns (1, n) or (B, n) of rows z (B, L) that are finished to the left; to the right only given ones count.

        So a window is left in a state from which the text can still come to an end in the columns that follow. Columns
        beyond the row are not part of the rule.
        """
        length, first = z.shape[1], column[:, :1]
        left = self.columns(slice(int(first.max())), self.span & (torch.arange(length, device=z.device) < first))
        at = column.clamp(max=length - 1).expand(len(z), -1)
        names = ("span", "may_end", "must_end", "given", "tokens")
        part = {name: getattr(self, name).gather(1, at) for name in names}
        part["span"] = part["span"] & (column < length)
        state = left.run(z[:, : int(first.max())])
        return replace(self, **part, state=state, goals=self.until(column[:, -1:]).goals)

    def until(self, last: Tensor) -> PlacedRule:
        """The columns up to `last` (B, 1) or (1, 1): of later ones only what was given counts."""
        place = torch.arange(self.span.shape[1], device=last.device)
        after = self.columns(slice(int(last.min()) + 1, None), self.span & (place > last))
        return replace(
            self, span=self.span & (place <= last), goals=after.possible(after.allowed(after.tokens, after.given))
        )

    def columns(self, columns: slice, span: Tensor) -> PlacedRule:
        """Some columns, if only those of `span` (B, L) obey."""
        names = ("may_end", "must_end", "given", "tokens")
        return replace(self, span=span[:, columns], **{name: getattr(self, name)[:, columns] for name in names})

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

    def allowed(self, z: Tensor, known: Tensor) -> _Bools:
        """(B, L, C) which classes may stand where: where `known` (B, L), that of the token alone."""
        automaton, kinds = self.automaton, np.arange(self.automaton.classes)
        allowed = np.ones((*z.shape, automaton.classes), np.bool_)
        if automaton.end is not None:
            over = np.isin(kinds, [automaton.end, *automaton.filler])
            allowed &= _numpy(self.may_end)[..., None] | (kinds != automaton.end)
            allowed &= ~_numpy(self.must_end)[..., None] | over
        own = automaton.class_of[_numpy(z)][..., None] == kinds
        return allowed & (own | ~_numpy(known)[..., None])

    def possible(self, allowed: _Bools) -> Tensor:
        """(B, S) bool: from which states before the first column a goal can be reached."""
        values, _ = self.program.backward(
            allowed.astype(np.float64), _numpy(self.span), _numpy(self.goals), _SUM_PRODUCT
        )
        return torch.from_numpy(values[0] > 0).to(self.state.device)

    def likeliest(self, log_p: Tensor) -> Tensor:
        """(B, L) ids of the likeliest text as a whole, for (B, L, V) log-weights of tokens; −1 outside the rule."""
        span, state, goals = (_numpy(a) for a in (self.span, self.state, self.goals))
        live = self.program.live(log_p.flatten(0, 1).float())
        sums = self.program.summed(live, live.amax(-1, keepdim=True), 1.0, _MAX_PRODUCT).reshape(*span.shape, -1)
        weights = np.where(self.allowed(self.tokens, self.given), sums, _MAX_PRODUCT.zero)
        values, _ = self.program.backward(weights, span, goals, _MAX_PRODUCT)
        kinds = torch.from_numpy(self.program.path(weights, span, state, values, None, _MAX_PRODUCT)).to(log_p.device)
        own = torch.from_numpy(self.automaton.class_of).to(log_p.device) == kinds[..., None]
        best = log_p.masked_fill(~own, -torch.inf).argmax(-1)
        return torch.where(self.span, torch.where(self.given, self.tokens, best), -1)


_Logits = Callable[[Tensor], Tensor]  # vectors (B, N, D) → log-weights of tokens (B, L, V), up to a constant


@dataclass(frozen=True, eq=False)
class PlacedRuleSet:
    """Rules on columns of their own."""

    parts: tuple[PlacedRule, ...]
    logits: _Logits | None = None  # what vectors say of tokens, on a canvas of vectors

    def rows(self, index: Tensor) -> PlacedRuleSet:
        return replace(self, parts=tuple(part.rows(index) for part in self.parts))

    def window(self, z: Tensor, column: Tensor) -> PlacedRuleSet:
        if not column.shape[1]:
            return replace(self, parts=tuple(part.columns(slice(0), part.span) for part in self.parts))
        if z.dim() == 3:
            z = self._read(z, column[:, :1])
        return replace(self, parts=tuple(part.window(z, column) for part in self.parts))

    def until(self, last: Tensor) -> PlacedRuleSet:
        """The columns up to `last` (B, 1) or (1, 1), to be left so that the text can still come to its end."""
        return replace(self, parts=tuple(part.until(last) for part in self.parts))

    def reading(self, logits: _Logits) -> PlacedRuleSet:
        return replace(self, logits=logits)

    def likeliest(self, z: Tensor) -> Tensor:
        return self._decoded(self.log_p(z))

    def log_p(self, z: Tensor) -> Tensor:
        """(B, L, V) log-probabilities of tokens, as vectors (B, N, D) tell them."""
        if self.logits is None:
            raise ValueError("rules on vectors need a codec: model.to_vectors(constrain(model.to_tokens(canvas), …))")
        return self.logits(z).float().log_softmax(-1)

    def _read(self, z: Tensor, first: Tensor) -> Tensor:
        """(B, L) the ids of the columns before `first`, as the rules want them; nothing is known of later ones."""
        later = torch.arange(z.shape[1], device=z.device) >= first
        return self._decoded(self.log_p(z).masked_fill(later[..., None], 0.0))

    def _decoded(self, log_p: Tensor) -> Tensor:
        found = log_p.argmax(-1)
        for part in self.parts:
            found = torch.where(part.span, part.likeliest(log_p), found)
        return found


def constrain(
    canvas: Canvas, rule: Rule | Sequence[Rule | None], tokenizer: Tokenizer, where: Tensor | None = None
) -> Canvas:
    """The canvas with a rule on it, for a denoiser that `Constrained` makes; a contradiction is an error at once.

    canvas: tokens to write and given ones, as `model.canvas` and `model.infill` make it. Models of vectors: take
        `model.to_tokens(canvas)`, and give the result to `model.to_vectors`.
    rule: what the text must be: Regex, Json, OneOf, Banned, Required, Length, or several of them joined by &; or a list
        with one for each row, None for those that are free.
    tokenizer: that of the model.
    where: (B, L) bool, the columns that the rule is about, for example a `hole_mask`; None: the whole text, given tokens
        included. Columns at the end of a row may end early, by the end token; others are filled with text.
    """
    if canvas.z.dim() != 2:
        raise ValueError("rules are about tokens: use model.to_vectors(constrain(model.to_tokens(canvas), …))")
    if canvas.open is not None:
        raise ValueError("rules need tokens at fixed places: insertion models cannot obey them yet")
    if isinstance(rule, Rule):
        return _marked(canvas, rule, tokenizer, where)
    if len(rule) != len(canvas.z):
        raise ValueError(f"{len(rule)} rules for {len(canvas.z)} rows; give one for each, or one for all")
    for each in dict.fromkeys(filter(None, rule)):
        own = torch.tensor([other == each for other in rule], device=canvas.z.device)[:, None]
        canvas = _marked(canvas, each, tokenizer, own.expand_as(canvas.z) if where is None else where & own)
    return replace(canvas, context=replace(canvas.context, marks=canvas.context.marks or PlacedRuleSet(())))


def _marked(canvas: Canvas, rule: Rule, tokenizer: Tokenizer, where: Tensor | None) -> Canvas:
    vocab = tokenizer.vocab
    text = _text(canvas, vocab)
    span = text if where is None else where & text
    before = canvas.context.marks
    held = before if isinstance(before, PlacedRuleSet) else PlacedRuleSet(())
    if any(bool((part.span & span).any()) for part in held.parts):
        raise ValueError("two rules are about the same columns; join them by &, or give them different holes")
    parts = []
    for begins, columns in _by_beginning(span, text, tokenizer):
        marked = _laid(_program(rule, tokenizer, begins), rule.length, columns, canvas, vocab)
        _require_possible(marked, rule, canvas, tokenizer)
        parts.append(marked)
    marks = replace(held, parts=(*held.parts, *parts))
    return replace(canvas, context=replace(canvas.context, marks=marks))


def hole_mask(canvas: Canvas, number: int = 0) -> Tensor:
    """(B, L) bool: the columns of a hole of each row, holes being counted from 0 and divided by given tokens."""
    holes = hole_numbers(canvas)
    if not bool((holes == number).any(-1).all()):
        raise ValueError(f"hole {number} of a row with {int(holes.amax(-1).min()) + 1} holes; they are counted from 0")
    return holes == number


def hole_numbers(canvas: Canvas) -> Tensor:
    """(B, L) the number of the hole that each column is in, from 0; −1: it is given."""
    free = ~canvas.fixed
    begins = free & ~torch.nn.functional.pad(free, (1, 0))[:, :-1]
    return torch.where(free, begins.cumsum(-1) - 1, -1)


def possible_lengths(rule: Rule, tokenizer: Tokenizer, most: int, text_begins: bool = False) -> list[int]:
    """How many tokens a hole in the middle of a text can have, up to `most`."""
    found = _program(rule, tokenizer, text_begins).automaton.lengths(most)
    limit = most if rule.length.most is None else rule.length.most
    return [length for length in found if rule.length.least <= length <= limit]


@lru_cache(64)
def _program(rule: Rule, tokenizer: Tokenizer, text_begins: bool) -> _AutomatonProgram:
    try:
        return _AutomatonProgram(
            _token_automaton(compile_rule(rule), _token_bytes(tokenizer), tokenizer.vocab, text_begins)
        )
    except _NotTokenizable:
        raise ValueError(f"the model has no tokens that spell a text which obeys {rule}; use its words") from None


def _by_beginning(span: Tensor, text: Tensor, tokenizer: Tokenizer) -> list[tuple[bool, Tensor]]:
    """The columns of rows in which they begin a text, and of others: some tokenizers write no space there."""
    begins = (span & (text.cumsum(-1) == 1)).any(-1, keepdim=True)
    others, spelled = span.any(-1, keepdim=True) & ~begins, _token_bytes(tokenizer)
    if spelled.at(True) == spelled.at(False) or not (bool(begins.any()) and bool(others.any())):
        return [(bool(begins.any()), span)]
    return [(True, span & begins), (False, span & others)]


def _text(canvas: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: columns of the text: behind the start token, which ends a source, and no padding."""
    text = torch.ones_like(canvas.fixed) if canvas.context.pad is None else ~canvas.context.pad
    if vocab.bos is None:
        return text
    starts = canvas.fixed & (canvas.z == vocab.bos)
    return text & (starts.flip(-1).cumsum(-1).flip(-1) == 0)


def _laid(program: _AutomatonProgram, length: Length, span: Tensor, canvas: Canvas, vocab: Vocab) -> PlacedRule:
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
    goals |= ~span.any(-1, keepdim=True)  # a row that the rule is not about
    state = torch.zeros(len(span), dtype=torch.int64, device=span.device)
    return PlacedRule(program, span, may_end, must_end, given, canvas.z, state, goals)


def _require_possible(marked: PlacedRule, rule: Rule, canvas: Canvas, tokenizer: Tokenizer) -> None:
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
