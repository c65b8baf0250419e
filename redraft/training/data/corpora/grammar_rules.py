"""Grammars written as a dictionary of named rules, and their conversion to nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from redraft.core.text.tokenizers import split_words
from redraft.training.data.corpora.grammar import (
    _Alternatives,
    _Assign,
    _CaseOf,
    _Emit,
    _Entry,
    _Node,
    _Option,
    _Sequential,
    _Terminal,
    _Topic,
)


@dataclass(frozen=True)
class DrawRule:
    """A rule that draws an entry of a table, stores it in a slot and emits one of its forms."""

    slot: str
    table: Sequence[_Entry]
    form: str = "name"


@dataclass(frozen=True)
class CaseRule:
    """A rule that chooses a template by a form stored in memory."""

    topic: _Topic
    templates: Mapping[str, str]


_Rule = str | Sequence[str] | Mapping[str, int] | DrawRule | CaseRule


@dataclass(frozen=True)
class RuleBook:
    """Named rules, written as templates. A list of templates is a uniform choice, a mapping to weights a weighted one.

    In a template, `{rule}` expands another rule, `{slot.form}` emits a form of the entry in a slot, and `{slot=word}`
    stores a word (under the form "name") without emitting it.
    """

    rules: Mapping[str, _Rule]
    built: dict[str, _Node | None] = field(default_factory=dict, repr=False)  # None while a rule is being built

    def node(self, name: str) -> _Node:
        """Returns the node of a rule; a rule that is used several times is one node."""
        if name not in self.rules:
            raise ValueError(f"{name!r} is not a rule; add it, or write {{slot.form}} to emit a slot")
        if name not in self.built:
            self.built[name] = None
            self.built[name] = self._build(self.rules[name])
        node = self.built[name]
        if node is None:
            raise ValueError(
                f"rule {name!r} contains itself; remove the recursion, since exact sums need a finite grammar"
            )
        return node

    def _build(self, rule: _Rule) -> _Node:
        match rule:
            case str():
                return self._template(rule)
            case DrawRule(slot, table, form):
                return _uniform(_Sequential((_Terminal(entry[form]), _Assign(slot, entry))) for entry in table)
            case CaseRule(topic, templates):
                return _CaseOf(topic, {split_words(word): self._template(t) for word, t in templates.items()})
            case Mapping():
                return _Alternatives(tuple(_Option(weight, self._template(text)) for text, weight in rule.items()))
            case _:
                return _uniform(self._template(text) for text in rule)

    def _template(self, template: str) -> _Node:
        """Parses a template to a node."""
        pieces = re.findall(r"\{[^}]*\}|[^{}]+", template)
        nodes = tuple(self._piece(piece) for piece in pieces if not piece.isspace())
        return nodes[0] if len(nodes) == 1 else _Sequential(nodes)

    def _piece(self, piece: str) -> _Node:
        if not piece.startswith("{"):
            return _Terminal(split_words(piece))
        parsed = re.fullmatch(r"\{(\w+)(?:([.=])(\w+))?\}", piece)
        if parsed is None:
            raise ValueError(f"{piece!r} is not a reference; write {{rule}}, {{slot.form}} or {{slot=word}}")
        name, operator, rest = parsed.groups()
        match operator:
            case ".":
                return _Emit((name, rest))
            case "=":
                return _Assign(name, entry(name=rest))
            case _:
                return self.node(name)


def _uniform(nodes: Iterable[_Node]) -> _Alternatives:
    return _Alternatives(tuple(_Option(1, node) for node in nodes))


def entry(**forms: str) -> _Entry:
    """Returns a table entry; a form with several phrases, "one / two", becomes the forms form1 and form2."""
    phrases = {form: text.split(" / ") for form, text in forms.items()}
    single = {form: split_words(texts[0]) for form, texts in phrases.items() if len(texts) == 1}
    return single | {
        f"{form}{n}": split_words(text)
        for form, texts in phrases.items()
        if len(texts) > 1
        for n, text in enumerate(texts, 1)
    }


def _phrasings(slot: str, form: str, count: int) -> tuple[str, ...]:
    """Returns templates for the forms form1, form2, ... of a slot."""
    return tuple(f"{{{slot}.{form}{n}}}" for n in range(1, count + 1))
