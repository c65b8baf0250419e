"""Rules placed on a canvas: which columns they cover, and where the text may end."""

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
class _PlacedRule:
    """One rule on some columns of each row; carried in `Constraints.rules`."""

    program: _AutomatonProgram
    span: Tensor  # (B, L) bool: columns that the rule covers; their text, read from left to right, must obey it
    may_end: Tensor  # (B, L) bool: positions that may hold the end token
    must_end: Tensor  # (B, L) bool: positions that may hold nothing but the end token and padding
    given: Tensor  # (B, L) bool: positions of given tokens
    tokens: Tensor  # (B, L) ids of the canvas; only given ones are used
    state: Tensor  # (B,) state of the automaton before the first column
    goals: Tensor  # (B, S) bool: states allowed after the last column

    @property
    def automaton(self) -> _TokenAutomaton:
        return self.program.automaton

    def rows(self, index: Tensor) -> _PlacedRule:
        """The rule on the rows at `index`."""
        names = ("span", "may_end", "must_end", "given", "tokens", "state", "goals")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    def window(self, z: Tensor, column: Tensor) -> _PlacedRule:
        """The rule on a window: columns (1, n) or (B, n) of rows z (B, L), which must be finished to the left of it.

        To the right, only given tokens count: after the window, the automaton must be in a state from which the
        remaining columns can still complete the text. Columns beyond the row are not covered by the rule.
        """
        length, first = z.shape[1], column[:, :1]
        left = self.columns(slice(int(first.max())), self.span & (torch.arange(length, device=z.device) < first))
        index = column.clamp(max=length - 1).expand(len(z), -1)
        names = ("span", "may_end", "must_end", "given", "tokens")
        fields = {name: getattr(self, name).gather(1, index) for name in names}
        fields["span"] = fields["span"] & (column < length)
        state = left.run(z[:, : int(first.max())])
        return replace(self, **fields, state=state, goals=self.until(column[:, -1:]).goals)

    def until(self, last: Tensor) -> _PlacedRule:
        """The rule on the columns up to `last`, (B, 1) or (1, 1), which keeps later given tokens possible."""
        position = torch.arange(self.span.shape[1], device=last.device)
        after = self.columns(slice(int(last.min()) + 1, None), self.span & (position > last))
        return replace(
            self, span=self.span & (position <= last), goals=after.can_finish(after.allowed(after.tokens, after.given))
        )

    def columns(self, columns: slice, span: Tensor) -> _PlacedRule:
        """The rule on a slice of the columns, covering only those in `span` (B, L)."""
        names = ("may_end", "must_end", "given", "tokens")
        return replace(self, span=span[:, columns], **{name: getattr(self, name)[:, columns] for name in names})

    def run(self, z: Tensor) -> Tensor:
        """(B,) state of the automaton after finished tokens z (B, L)."""
        after, states = self.automaton.after, self.automaton.states
        classes, span, state = self.automaton.class_of[_numpy(z)], _numpy(self.span), _numpy(self.state)
        table = np.column_stack([np.vstack([after, np.full((1, after.shape[1]), states)]), np.full(states + 1, states)])
        for i in range(z.shape[1]):
            state = np.where(span[:, i], table[state, classes[:, i]], state)  # class −1 is the last column
        if (state == states).any():
            raise ValueError("the text written so far breaks the rule; this should never happen")
        return torch.from_numpy(state).to(self.state.device)

    def allowed(self, z: Tensor, settled: Tensor) -> _Bools:
        """(B, L, C) bool: classes allowed at each position; where `settled` (B, L), only the token in z."""
        automaton, classes = self.automaton, np.arange(self.automaton.classes)
        allowed = np.ones((*z.shape, automaton.classes), np.bool_)
        if automaton.end is not None:
            after_end = np.isin(classes, [automaton.end, *automaton.filler])
            allowed &= _numpy(self.may_end)[..., None] | (classes != automaton.end)
            allowed &= ~_numpy(self.must_end)[..., None] | after_end
        own = automaton.class_of[_numpy(z)][..., None] == classes
        return allowed & (own | ~_numpy(settled)[..., None])

    def can_finish(self, allowed: _Bools) -> Tensor:
        """(B, S) bool: states before the first column from which a goal can be reached."""
        values, _ = self.program.backward(
            allowed.astype(np.float64), _numpy(self.span), _numpy(self.goals), _SUM_PRODUCT
        )
        return torch.from_numpy(values[0] > 0).to(self.state.device)

    def likeliest(self, log_p: Tensor) -> Tensor:
        """(B, L) ids of the most likely text as a whole, given (B, L, V) log-weights of tokens; −1 outside the span."""
        span, state, goals = (_numpy(a) for a in (self.span, self.state, self.goals))
        usable = self.program.select_usable(log_p.flatten(0, 1).float())
        best = self.program.class_weights(usable, usable.amax(-1, keepdim=True), 1.0, _MAX_PRODUCT)
        allowed = self.allowed(self.tokens, self.given)
        weights = np.where(allowed, best.reshape(*span.shape, -1), _MAX_PRODUCT.zero)
        values, _ = self.program.backward(weights, span, goals, _MAX_PRODUCT)
        classes = torch.from_numpy(self.program.path(weights, span, state, values, None, _MAX_PRODUCT)).to(log_p.device)
        own = torch.from_numpy(self.automaton.class_of).to(log_p.device) == classes[..., None]
        tokens = log_p.masked_fill(~own, -torch.inf).argmax(-1)
        return torch.where(self.span, torch.where(self.given, self.tokens, tokens), -1)


_Logits = Callable[[Tensor], Tensor]  # vectors (B, N, D) → log-weights of tokens (B, L, V), up to a constant


@dataclass(frozen=True, eq=False)
class _PlacedRuleSet:
    """All rules on a canvas; no two of them cover the same column."""

    parts: tuple[_PlacedRule, ...]
    logits: _Logits | None = None  # on a canvas of vectors: log-weights of tokens, given vectors; else None

    def rows(self, index: Tensor) -> _PlacedRuleSet:
        return replace(self, parts=tuple(part.rows(index) for part in self.parts))

    def window(self, z: Tensor, column: Tensor) -> _PlacedRuleSet:
        if not column.shape[1]:
            return replace(self, parts=tuple(part.columns(slice(0), part.span) for part in self.parts))
        if z.dim() == 3:
            z = self._read(z, column[:, :1])
        return replace(self, parts=tuple(part.window(z, column) for part in self.parts))

    def until(self, last: Tensor) -> _PlacedRuleSet:
        """The rules on the columns up to `last`, (B, 1) or (1, 1); later columns must be able to complete the text."""
        return replace(self, parts=tuple(part.until(last) for part in self.parts))

    def reading(self, logits: _Logits) -> _PlacedRuleSet:
        return replace(self, logits=logits)

    def likeliest(self, z: Tensor) -> Tensor:
        return self._decode(self.log_p(z))

    def log_p(self, z: Tensor) -> Tensor:
        """(B, L, V) log-probabilities of tokens, predicted from vectors (B, N, D)."""
        if self.logits is None:
            raise ValueError("rules on vectors need a codec: model.to_vectors(constrain(model.to_tokens(canvas), …))")
        return self.logits(z).float().log_softmax(-1)

    def _read(self, z: Tensor, first: Tensor) -> Tensor:
        """(B, L) most likely ids that obey the rules, with uniform probabilities from the column `first` on."""
        later = torch.arange(z.shape[1], device=z.device) >= first
        return self._decode(self.log_p(z).masked_fill(later[..., None], 0.0))

    def _decode(self, log_p: Tensor) -> Tensor:
        ids = log_p.argmax(-1)
        for part in self.parts:
            ids = torch.where(part.span, part.likeliest(log_p), ids)
        return ids


def constrain(
    canvas: Canvas, rule: Rule | Sequence[Rule | None], tokenizer: Tokenizer, where: Tensor | None = None
) -> Canvas:
    """Attach a rule to the canvas. The denoiser must be wrapped in `Constrained`, which enforces it.

    Raises at once if no text can obey the rule next to the given text.

    Args:
        canvas: a canvas of tokens, as `model.canvas` and `model.compose` make it. For models of vectors pass
            `model.to_tokens(canvas)`, and convert the result with `model.to_vectors`
        rule: Regex, Json, OneOf, Banned, Required, Length, or several of them joined with &; or a list with a rule for
            each row, None for unconstrained rows
        tokenizer: the model's tokenizer
        where: (B, L) bool: the columns that the rule covers, for example a `hole_mask`; None for the whole text, given
            tokens included. If it is at the end of a row, the text may end early, with the end token
    """
    if canvas.z.dim() != 2:
        raise ValueError("rules need tokens, not vectors; use model.to_vectors(constrain(model.to_tokens(canvas), …))")
    if canvas.open is not None:
        raise ValueError("insertion models do not support constraints, which need fixed positions; use another model")
    if isinstance(rule, Rule):
        return _add_rule(canvas, rule, tokenizer, where)
    if len(rule) != len(canvas.z):
        raise ValueError(f"{len(rule)} rules for {len(canvas.z)} rows; give one per row, or a single rule for all")
    for distinct in dict.fromkeys(filter(None, rule)):
        rows = torch.tensor([other == distinct for other in rule], device=canvas.z.device)[:, None]
        canvas = _add_rule(canvas, distinct, tokenizer, rows.expand_as(canvas.z) if where is None else where & rows)
    return canvas.with_constraints(rules=canvas.context.constraints.rules or _PlacedRuleSet(()))


def _add_rule(canvas: Canvas, rule: Rule, tokenizer: Tokenizer, where: Tensor | None) -> Canvas:
    vocab = tokenizer.vocab
    text = _text_mask(canvas, vocab)
    span = text if where is None else where & text
    before = canvas.context.constraints.rules
    rules = before if isinstance(before, _PlacedRuleSet) else _PlacedRuleSet(())
    if any(bool((part.span & span).any()) for part in rules.parts):
        raise ValueError("two rules cover the same columns; join them with &, or give them different holes")
    parts = []
    for begins, columns in _split_by_beginning(span, text, tokenizer):
        placed = _place_rule(_program(rule, tokenizer, begins), rule.length, columns, canvas, vocab)
        _require_possible(placed, rule, canvas, tokenizer)
        parts.append(placed)
    return canvas.with_constraints(rules=replace(rules, parts=(*rules.parts, *parts)))


def hole_mask(canvas: Canvas, index: int = 0) -> Tensor:
    """(B, L) bool: the columns of one hole in each row; holes are separated by given tokens and counted from 0."""
    holes = hole_indices(canvas)
    if not bool((holes == index).any(-1).all()):
        raise ValueError(
            f"index={index}; it must be the index of a hole in every row, below {int(holes.amax(-1).min()) + 1}"
        )
    return holes == index


def hole_indices(canvas: Canvas) -> Tensor:
    """(B, L) index of the hole that each column is in, counted from 0; −1 for given columns."""
    free = ~canvas.fixed
    begins = free & ~torch.nn.functional.pad(free, (1, 0))[:, :-1]
    return torch.where(free, begins.cumsum(-1) - 1, -1)


def can_constrain(tokenizer: Tokenizer) -> bool:
    """Return whether rules work with this tokenizer, which needs to know the bytes of each token."""
    try:
        return bool(_token_bytes(tokenizer))
    except ValueError:
        return False


def possible_lengths(rule: Rule, tokenizer: Tokenizer, most: int, text_begins: bool = False) -> list[int]:
    """Return every length, up to `most` tokens, at which a hole can satisfy the rule."""
    lengths = _program(rule, tokenizer, text_begins).automaton.lengths(most)
    limit = most if rule.length.most is None else rule.length.most
    return [length for length in lengths if rule.length.least <= length <= limit]


@lru_cache(64)
def _program(rule: Rule, tokenizer: Tokenizer, text_begins: bool) -> _AutomatonProgram:
    try:
        return _AutomatonProgram(
            _token_automaton(compile_rule(rule), _token_bytes(tokenizer), tokenizer.vocab, text_begins)
        )
    except _NotTokenizable:
        raise ValueError(
            f"the vocabulary cannot spell any text that obeys {rule}; use only words of the vocabulary"
        ) from None


def _split_by_beginning(span: Tensor, text: Tensor, tokenizer: Tokenizer) -> list[tuple[bool, Tensor]]:
    """Split the rows by whether the span is at the beginning of the text, where some tokenizers write no space."""
    begins = (span & (text.cumsum(-1) == 1)).any(-1, keepdim=True)
    others, token_bytes = span.any(-1, keepdim=True) & ~begins, _token_bytes(tokenizer)
    if token_bytes.at(True) == token_bytes.at(False) or not (bool(begins.any()) and bool(others.any())):
        return [(bool(begins.any()), span)]
    return [(True, span & begins), (False, span & others)]


def _text_mask(canvas: Canvas, vocab: Vocab) -> Tensor:
    """(B, L) bool: columns of the text, without padding; it begins after the last given start token."""
    text = torch.ones_like(canvas.fixed) if canvas.context.pad is None else ~canvas.context.pad
    if vocab.bos is None:
        return text
    starts = canvas.fixed & (canvas.z == vocab.bos)
    return text & (starts.flip(-1).cumsum(-1).flip(-1) == 0)


def _place_rule(program: _AutomatonProgram, length: Length, span: Tensor, canvas: Canvas, vocab: Vocab) -> _PlacedRule:
    """Place a rule on the columns of `span`. The text may end early only where no given or other text follows."""
    given = canvas.fixed if canvas.context.pad is None else canvas.fixed & ~canvas.context.pad
    others = ~span if canvas.context.pad is None else ~span & ~canvas.context.pad
    followed = (others | (span & given)).flip(-1).cumsum(-1).flip(-1) > 0
    before = span.cumsum(-1) - span.long()  # number of tokens of the span before each column
    may_end = span & ~followed & (before >= length.least) & (vocab.eos is not None)
    must_end = span & (before >= (span.shape[1] if length.most is None else length.most))
    open_ended = may_end.any(-1)
    goals = torch.from_numpy(np.stack([program.automaton.goals(bool(row)) for row in open_ended])).to(span.device)
    goals &= (~(span.sum(-1) < length.least))[:, None] | (torch.arange(goals.shape[1]) == goals.shape[1] - 1)
    goals |= ~span.any(-1, keepdim=True)  # rows that the rule does not cover
    state = torch.zeros(len(span), dtype=torch.int64, device=span.device)
    return _PlacedRule(program, span, may_end, must_end, given, canvas.z, state, goals)


def _require_possible(placed: _PlacedRule, rule: Rule, canvas: Canvas, tokenizer: Tokenizer) -> None:
    """Raise, with the reason, if no text obeys the rule in these columns next to the given tokens."""
    possible = placed.can_finish(placed.allowed(canvas.z, placed.given))
    wrong = ~possible.gather(1, placed.state[:, None]).squeeze(1)
    if not bool(wrong.any()):
        return
    row = int(wrong.int().argmax())
    span, given = placed.span[row], placed.given[row]
    room, least = int(span.sum()), placed.program.automaton.shortest()
    least = max(least, rule.length.least)
    where = f"row {row}: " if len(wrong) > 1 else ""
    if least > room:
        raise ValueError(
            f"{where}a text that obeys {rule} has at least {least} tokens, but there is room for {room}; make more room"
        )
    if bool((span & given).any()):
        text = tokenizer.decode(canvas.z[row][span & given].tolist())
        raise ValueError(
            f"{where}no text of {room} tokens with the given {text!r:.60} obeys {rule}; change one of them"
        )
    most = rule.length.most
    full = "" if bool(placed.may_end[row].any()) else ", and the text cannot end before them"
    limit = "" if most is None else f", at most {most} of them text"
    raise ValueError(f"{where}no text of {room} tokens obeys {rule}{limit}{full}; use another number of tokens")


def _numpy(a: Tensor) -> np.ndarray:
    return a.detach().cpu().numpy()
