"""Requests as rows of ids: the order of context and answer, and what is cut if a row is too short."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.batch import Batch, BatchOrigin
from redraft.core.condition import Condition
from redraft.core.vocab import MAX_WIDTH
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.engine.model import TextModel
from redraft.training.data.framing import Framing

_LENGTH = 2048  # tokens per row, for models that have no limit of their own

_Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class AnswerRequest:
    """Ids of a context and of the answer to score; the answer is empty if one is to be generated."""

    context: tuple[int, ...]
    answer: tuple[int, ...] = ()

    @property
    def sample(self) -> int:
        """Key of its random numbers, from the context alone, so that answers to one question share their noise."""
        text = ",".join(map(str, self.context)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class RowLayout:
    """How a model reads a request: the start token, the longest row, and what follows the answer.

    Models of plain text read [bos] context answer. Models trained on pairs read context [bos] answer, or read the
    context with their encoder.
    """

    model: TextModel
    max_length: int | None = None  # maximum number of tokens per row; None for that of training

    def __post_init__(self) -> None:
        if self.lm.tokenizer is None:
            raise ValueError(
                f"{self.model.display_name} has no tokenizer, which tasks need; put tokenizer.json into its directory"
            )
        framing, positions = self._framing, self.lm.config.network.positions
        if framing is not None and not framing.answers_texts:
            name = type(framing).__name__
            raise ValueError(
                f"{self.model.display_name} was trained on rows of {name}, which have no room for the text of a task; "
                "use a model of plain text, pairs or chats"
            )
        if self.max_length is not None and not 2 <= self.max_length <= (positions or MAX_WIDTH):
            raise ValueError(f"length={self.max_length}: the network needs a length from 2 to {positions or MAX_WIDTH}")

    @property
    def lm(self) -> DiffusionLM:
        return self.model.lm

    @property
    def length(self) -> int:
        """Maximum number of tokens per row."""
        trained = self.lm.config.network.positions if self._framing is None else self._framing.length
        return self.max_length or trained or _LENGTH

    @property
    def _framing(self) -> Framing | None:
        return None if self.model.run is None else self.model.run.framing

    # --- text → ids ---

    def request(self, context: str, answer: str, encode: _Encode) -> AnswerRequest:
        """Encode a context and its answer.

        They are encoded together and then split, and spaces between them belong to the answer, as lm-eval expects. For
        a model trained on pairs they are encoded separately.
        """
        if self.in_pairs:
            return self._request(encode(context), encode(answer.removeprefix(" ")), answer)
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, answer = context[:-spaces], context[-spaces:] + answer
        context_ids, all_ids = encode(context), encode(context + answer)
        return self._request(context_ids, all_ids[len(context_ids) :] or encode(answer), answer)

    def _request(self, context: Sequence[int], answer: Sequence[int], text: str) -> AnswerRequest:
        if not answer:
            raise ValueError(f"the answer {text!r:.60} has no tokens in this tokenizer; check the answers of the task")
        return AnswerRequest(tuple(context), tuple(answer))

    @property
    def in_pairs(self) -> bool:
        """Whether the model was trained to answer sources."""
        return self._framing is not None and self._framing.separates_sources

    @property
    def in_chat(self) -> bool:
        """Whether the model was trained on chats that a template renders."""
        return self._framing is not None and self._framing.in_chat

    @property
    def _has_encoder(self) -> bool:
        """Whether an encoder reads the context."""
        return "encoder" in self.lm.parts

    # --- ids → rows ---

    @property
    def capacity(self) -> int:
        """Number of context and answer tokens that fit in a row."""
        return self.length - int(self.lm.config.vocab.bos is not None)

    def context_size(self, request: AnswerRequest) -> int:
        """Number of tokens that the context takes in the row; 0 if an encoder reads it."""
        return 0 if self._has_encoder else len(request.context)

    def windows(self, request: AnswerRequest) -> list[AnswerRequest]:
        """Split a request into parts that fit in a row.

        A long context keeps its end. A long answer is cut into windows; each but the first has the token before it as
        its context.
        """
        capacity = self.capacity
        first = capacity - bool(self.context_size(request))
        if len(request.answer) <= first:
            return [self._truncate(request, capacity)]
        windows = [self._truncate(AnswerRequest(request.context, request.answer[:first]), capacity)]
        for i in range(first, len(request.answer), capacity - 1):
            windows.append(AnswerRequest(request.answer[i - 1 : i], request.answer[i : i + capacity - 1]))
        return windows

    def prompt(self, request: AnswerRequest, new: int) -> AnswerRequest:
        """Return the context without an answer, truncated from the left so that `new` tokens fit after it."""
        return replace(self._truncate(AnswerRequest(request.context, (0,) * new), self.capacity), answer=())

    def _truncate(self, request: AnswerRequest, capacity: int) -> AnswerRequest:
        """Drop the beginning of a context that does not fit."""
        most = capacity - len(request.answer)
        most = most if self._framing is None else self._framing.context_room(most)
        return replace(request, context=request.context[max(0, len(request.context) - most) :])

    def prefix(self, request: AnswerRequest) -> list[int]:
        """Return the ids that precede the answer in the row."""
        start = self._start(request)
        if self._has_encoder:
            return start
        return [*start, *request.context] if self._framing is None else self._framing.prompt(request.context, start)

    def _start(self, request: AnswerRequest) -> list[int]:
        """Return the start token, if the model was trained with one and the context does not already begin with it.

        A plain causal model cannot predict the first token of a row. Without a context it gets the start token or, if
        it has none, the end token.
        """
        vocab, tokenizer, no_context = self.lm.config.vocab, self.lm.tokenizer, not request.context
        if no_context and self.lm.config.is_plain_causal:
            return [token for token in (vocab.bos, vocab.eos) if token is not None][:1]
        unused = self.model.run is None and tokenizer is not None and not tokenizer.begins
        if vocab.bos is None or unused or request.context[:1] == (vocab.bos,):
            return []
        return [vocab.bos]

    def row_length(self, size: int) -> int:
        """Return the length of the row for a text of `size` tokens; what follows the text is unknown to the network.

        Rows that had a fixed length in training keep it. Block-causal models get whole blocks.
        """
        lm = self.lm
        if lm.process.grows:
            return size  # the text ends here, since insertion has no positions for what would follow
        if lm.block is not None:
            return -(-size // lm.block) * lm.block
        return max(size, self.model.full_row_length or 0)

    def batch(self, requests: Sequence[AnswerRequest]) -> Batch:
        """Lay out requests as rows in which only the answers are scored; each row draws from the key of its context."""
        vocab, prefixes = self.lm.config.vocab, [self.prefix(request) for request in requests]
        prefix_size = torch.tensor([len(ids) for ids in prefixes])[:, None]
        size = prefix_size + torch.tensor([len(request.answer) for request in requests])[:, None]
        length = torch.tensor([self.row_length(int(n)) for n in size])[:, None]
        position = torch.arange(int(length.max()))
        tokens = torch.full((len(requests), len(position)), vocab.filler)
        for row, ids, request in zip(tokens, prefixes, requests, strict=True):
            row[: len(ids) + len(request.answer)] = torch.tensor([*ids, *request.answer])
        pad, unknown = position >= length, (position >= size) & (position < length)
        return Batch(
            tokens,
            (position >= prefix_size) & (position < size),
            pad if bool(pad.any()) else None,
            unknown if bool(unknown.any()) else None,
            Condition(None, *self._sources(requests)),
            BatchOrigin(torch.tensor([request.sample for request in requests])),
        )

    def _sources(self, requests: Sequence[AnswerRequest]) -> tuple[Tensor | None, Tensor | None]:
        """Return the encoder's input, each context with an end token, and its padding; None without an encoder."""
        if not self._has_encoder:
            return None, None
        eos = self.lm.config.vocab.eos
        rows = [[*request.context, *([] if eos is None else [eos])] for request in requests]
        longest = max(map(len, rows))
        filler = self.lm.config.vocab.filler
        source = torch.tensor([row + [filler] * (longest - len(row)) for row in rows])
        return source, torch.arange(longest) >= torch.tensor([len(row) for row in rows])[:, None]
