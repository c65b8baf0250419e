"""The holes of a template and their answers as tokens; an answer is tokenized together with the text around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redraft.core.text.boundaries import GivenTokens, JointTokens, split_given_text, split_joint_tokens
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import require_texts
from redraft.tasks.arguments.templates import HOLE
from redraft.tasks.engine.model import TextModel

_EXAMPLE = '"The sky is [[?]]."'
_MOST_ANSWERS = 10_000
_Ids = tuple[int, ...]


class _MaskedRow(NamedTuple):
    """A row in which every hole is masked, one of them for the answer."""

    pieces: list[_Ids | int]  # the row as an argument of `DiffusionLM.compose`
    length: int  # tokens in the row
    before: int  # masked tokens before those of the answer
    size: int  # masked tokens of the answer


@dataclass(frozen=True)
class _HoleQuestion:
    """A hole, its possible answers, and the text around it."""

    template: str
    hole: int  # index of the hole among those with answers
    answers: tuple[str, ...]
    ids: tuple[_Ids, ...]  # tokens of each answer; those at its ends may also contain given text
    given: tuple[_Ids, ...]  # tokens of the text before, between and after all holes, start token included
    sizes: tuple[int, ...]  # number of tokens in each hole
    at: int  # index of the hole among all holes

    @property
    def lengths(self) -> set[int]:
        """Numbers of tokens that answers have."""
        return set(map(len, self.ids))

    @property
    def prefix(self) -> _Ids:
        """Tokens of the text before the hole. Raises if an unfilled hole precedes it."""
        if self.at > 0:
            raise ArgumentError(
                "templates",
                f"{self.template!r:.60}: this network reads left to right and cannot predict a hole that follows an "
                "unfilled one; ask about one hole at a time, the first one first",
            )
        return self.given[0]

    @property
    def suffix(self) -> _Ids:
        """Tokens of the text between the hole and the next one."""
        return self.given[self.at + 1]

    def row(self, size: int, length: int) -> _MaskedRow:
        """The row with `size` tokens for the hole, and masked tokens up to `length` tokens."""
        sizes = [*self.sizes[: self.at], size, *self.sizes[self.at + 1 :]]
        used = sum(map(len, self.given)) + sum(sizes)
        pieces: list[_Ids | int] = [piece for pair in zip(self.given, sizes, strict=False) for piece in pair]
        rest = [length - used] if length > used else []
        return _MaskedRow([*pieces, self.given[-1], *rest], max(used, length), sum(sizes[: self.at]), size)


def _hole_questions(model: TextModel, template: str, answers: Sequence[Any]) -> Iterator[_HoleQuestion]:
    """One question for each hole [[?]] of a template."""
    parts = HOLE.split(template)
    texts, holes = parts[::2], parts[1::2]
    _require_holes(template, holes)
    open_holes = [i for i, hole in enumerate(holes) if hole == "?"]
    lists = dict(zip(open_holes, _answers_of_holes(answers, len(open_holes)), strict=True))
    given = [
        split_given_text(model.tokenizer, text, hole_before=i > 0, hole_after=i < len(holes))
        for i, text in enumerate(texts)
    ]
    joint = {i: _joint_tokens(model, texts, given, i, answers) for i, answers in lists.items()}
    sizes = tuple(max(map(len, joint[i].inner)) if i in joint else int(hole) for i, hole in enumerate(holes))
    start = model.lm.config.vocab.bos
    begin = () if start is None else (start,)
    for index, i in enumerate(open_holes):
        around = [part.ids for part in given]
        around[i], around[i + 1] = joint[i].before, joint[i].after
        around[0] = (*begin, *around[0])
        yield _HoleQuestion(template, index, lists[i], joint[i].inner, tuple(around), sizes, i)


def _require_holes(template: str, holes: Sequence[str]) -> None:
    if "?" not in holes:
        raise ArgumentError("templates", f"{template!r:.60} has no hole for the answers; write [[?]], as in {_EXAMPLE}")
    for hole in holes:
        if hole != "?" and not (hole.isdecimal() and 0 < int(hole[:9]) < 10**6):
            raise ArgumentError(
                "templates",
                f"the hole [[{hole:.20}]] is invalid; write [[?]] for a hole to answer, or [[n]] for n masked tokens",
            )


def _answers_of_holes(answers: Sequence[Any], holes: int) -> list[tuple[str, ...]]:
    """The answers of each hole."""
    if isinstance(answers, str) or not isinstance(answers, Sequence):
        raise ArgumentError("answers", f"answers={answers!r:.60}: give a list of texts, or such a list for each hole")
    nested = [item for item in answers if not isinstance(item, str)]
    if nested and (len(nested) < len(answers) or len(answers) != holes):
        raise ArgumentError("answers", f"answers=…: {len(answers)} lists for {holes} holes; give one list for each")
    lists = [tuple(require_texts("answers", texts)) for texts in (answers if nested else [answers] * holes)]
    for texts in lists:
        if len(texts) < 2 or len(set(texts)) < len(texts) or len(texts) > _MOST_ANSWERS:
            raise ArgumentError(
                "answers",
                f"answers={list(texts)!r:.60}: give 2 to {_MOST_ANSWERS:,} answers without duplicates",
            )
    return lists


def _joint_tokens(
    model: TextModel, texts: Sequence[str], given: Sequence[GivenTokens], hole: int, answers: Sequence[str]
) -> JointTokens:
    """The tokens of the text before a hole, of each answer and of the text after it; other holes stay as they are."""
    before = texts[hole].removeprefix(given[hole].head)
    after = texts[hole + 1].removesuffix(given[hole + 1].tail)
    encode = model.tokenizer.encode if hole == 0 else model.tokenizer.encode_inside
    for answer in answers:
        model.token_count(f"{before}{answer}{after}")  # raises if a word is unknown
        if not model.tokenizer.encode(answer):
            raise ArgumentError("answers", f"the answer {answer!r} has no tokens; give one that is not empty")
    return split_joint_tokens([tuple(encode(f"{before}{answer}{after}")) for answer in answers])
