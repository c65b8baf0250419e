"""Requests as rows of ids: where context and answer go, and what is cut off if a row is too short."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.processes.insertion import Insertion
from redraft.core.text.tokenizers import HubTokenizer
from redraft.core.vocab import MAX_WIDTH
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.engine.model import TextModel
from redraft.training.data.framing import Framing
from redraft.training.data.pair_framing import ChatRows, EncoderRows, PairRows

_LENGTH = 2048  # tokens of a row, for models that say nothing about it

_Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class AnswerRequest:
    """An answer after its context, in ids; without an answer one is to be written."""

    context: tuple[int, ...]
    answer: tuple[int, ...] = ()

    @property
    def sample(self) -> int:
        """The key of its randomness, from the context alone: answers to one question share their noise."""
        said = ",".join(map(str, self.context)).encode()
        return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class RowLayout:
    """How a model reads requests: its start token, its longest row, and what stands after the answer.

    Models of plain text read [bos] context answer; those trained on pairs read context [bos] answer, or the context
    through their encoder.
    """

    it: TextModel
    longest: int | None = None  # tokens of a row at most; None: as many as in training

    def __post_init__(self) -> None:
        if self.model.tokenizer is None:
            raise ValueError(f"{self.it.display_name} has no tokenizer, so it can read no task; put tokenizer.json there")
        framing, positions = self._framing, self.model.config.network.positions
        if framing is not None and framing.conditional and not isinstance(framing, ChatRows | PairRows | EncoderRows):
            name = type(framing).__name__
            raise ValueError(f"{self.it.display_name} was trained on {name}, which has no place for the text of a task")
        if self.longest is not None and not 2 <= self.longest <= (positions or MAX_WIDTH):
            raise ValueError(
                f"length={self.longest}: it must be from 2 to {positions or MAX_WIDTH}, as the network allows"
            )

    @property
    def model(self) -> DiffusionLM:
        return self.it.lm

    @property
    def length(self) -> int:
        """Tokens of a row at most."""
        trained = self.model.config.network.positions if self._framing is None else self._framing.length
        return self.longest or trained or _LENGTH

    @property
    def _framing(self) -> Framing | None:
        return None if self.it.run is None else self.it.run.framing

    # --- text → ids ---

    def request(self, context: str, answer: str, encode: _Encode) -> AnswerRequest:
        """Both texts as ids. They are cut apart after they were encoded together, and spaces between them belong to
        the answer, as the harness expects; a model of pairs reads them one by one.
        """
        if self.in_pairs:
            return self._answered(encode(context), encode(answer.removeprefix(" ")), answer)
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, answer = context[:-spaces], context[-spaces:] + answer
        before, whole = encode(context), encode(context + answer)
        return self._answered(before, whole[len(before) :] or encode(answer), answer)

    def _answered(self, context: Sequence[int], answer: Sequence[int], text: str) -> AnswerRequest:
        if not answer:
            raise ValueError(f"the answer {text!r:.60} has no token for this tokenizer, so there is nothing to score")
        return AnswerRequest(tuple(context), tuple(answer))

    @property
    def in_pairs(self) -> bool:
        """Whether the model was trained to answer sources."""
        return isinstance(self._framing, PairRows | EncoderRows)

    @property
    def in_chat(self) -> bool:
        """Whether the model was trained on questions that a chat template words."""
        return isinstance(self._framing, ChatRows)

    @property
    def _beside(self) -> bool:
        """Whether an encoder reads the context."""
        return self.model.encoder is not None

    # --- ids → rows ---

    @property
    def room(self) -> int:
        """Tokens of context and answer that a row holds."""
        return self.length - int(self.model.config.vocab.bos is not None)

    def taken(self, request: AnswerRequest) -> int:
        """How much of the room the context takes."""
        return 0 if self._beside else len(request.context)

    def parts(self, request: AnswerRequest) -> list[AnswerRequest]:
        """The request in rows that fit: of a long context its end; a long answer in windows, each after one token."""
        room = self.room
        if len(request.answer) <= room - bool(self.taken(request)):
            return [self._cut(request, room)]
        first = room - bool(self.taken(request))
        windows = [self._cut(AnswerRequest(request.context, request.answer[:first]), room)]
        for i in range(first, len(request.answer), room - 1):
            windows.append(AnswerRequest(request.answer[i - 1 : i], request.answer[i : i + room - 1]))
        return windows

    def shortened(self, request: AnswerRequest, new: int) -> AnswerRequest:
        """With as much of the end of the context as leaves room for `new` tokens."""
        return replace(self._cut(AnswerRequest(request.context, (0,) * new), self.room), answer=())

    def _cut(self, request: AnswerRequest, room: int) -> AnswerRequest:
        framing = self._framing
        most = room - len(request.answer)
        if isinstance(framing, PairRows):
            most = min(most, framing.source)
        elif isinstance(framing, EncoderRows):
            most = framing.source - 1
        return replace(request, context=request.context[max(0, len(request.context) - most) :])

    def before(self, request: AnswerRequest) -> list[int]:
        """What stands in the row before the answer."""
        start = self._start(request)
        if self._beside:
            return start
        return [*request.context, *start] if self.in_pairs else [*start, *request.context]

    def _start(self, request: AnswerRequest) -> list[int]:
        """The start token, if the model was trained with one and the context does not begin with it itself.

        A plain causal model predicts nothing without a token before: an end token serves if there is no other.
        """
        vocab, tokenizer, alone = self.model.config.vocab, self.model.tokenizer, not request.context
        if alone and self.model.config.continues:
            return [token for token in (vocab.bos, vocab.eos) if token is not None][:1]
        without = self.it.run is None and isinstance(tokenizer, HubTokenizer) and not tokenizer.begins
        if vocab.bos is None or without or request.context[:1] == (vocab.bos,):
            return []
        return [vocab.bos]

    def filled(self, size: int) -> int:
        """The length of the row that a text of this many tokens needs.

        Rows of a fixed length in training stay that long, blocks are whole: what follows the text is unknown.
        """
        model = self.model
        if isinstance(model.process, Insertion):
            return size  # a text that ends here: it has no places for what follows
        if model.block is not None:
            return -(-size // model.block) * model.block
        return max(size, self.it.full_row_length or 0)

    def batch(self, requests: Sequence[AnswerRequest]) -> Batch:
        """Rows that learn their answers alone; each draws from the key of its context."""
        vocab, before = self.model.config.vocab, [self.before(request) for request in requests]
        given = torch.tensor([len(ids) for ids in before])[:, None]
        size = given + torch.tensor([len(request.answer) for request in requests])[:, None]
        whole = torch.tensor([self.filled(int(n)) for n in size])[:, None]
        place = torch.arange(int(whole.max()))
        tokens = torch.full((len(requests), len(place)), vocab.filler)
        for row, ids, request in zip(tokens, before, requests, strict=True):
            row[: len(ids) + len(request.answer)] = torch.tensor([*ids, *request.answer])
        pad, unknown = place >= whole, (place >= size) & (place < whole)
        source, source_pad = self._sources(requests)
        return Batch(
            tokens,
            (place >= given) & (place < size),
            pad if bool(pad.any()) else None,
            torch.tensor([request.sample for request in requests]),
            source=source,
            source_pad=source_pad,
            unknown=unknown if bool(unknown.any()) else None,
        )

    def _sources(self, requests: Sequence[AnswerRequest]) -> tuple[Tensor | None, Tensor | None]:
        """What an encoder reads: each context and an end token."""
        if not self._beside:
            return None, None
        eos = self.model.config.vocab.eos
        rows = [[*request.context, *([] if eos is None else [eos])] for request in requests]
        most = max(map(len, rows))
        filler = self.model.config.vocab.filler
        source = torch.tensor([row + [filler] * (most - len(row)) for row in rows])
        return source, torch.arange(most) >= torch.tensor([len(row) for row in rows])[:, None]
