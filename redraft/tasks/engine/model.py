"""A model that can write: its weights, and what the run that trained it knows about rows, classes and samplers."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from string import punctuation
from typing import TypeAlias

from redraft.core.hardware.system import best_device, free_memory
from redraft.core.text.chat_template import prompt_ids
from redraft.core.text.tokenizers import UNKNOWN, HubTokenizer, Tokenizer, WordTokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.models.canvas_builder import VariableHole, make_hole
from redraft.models.checkpoints import serialization
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.arguments.rules import ArgumentError
from redraft.training.data.framing import DocumentRows, PackedRows
from redraft.training.data.pair_framing import ChatRows
from redraft.training.data.pairs import HasClasses
from redraft.training.objectives.objective import CodecObjective, Objective
from redraft.training.runs.loading import load_with_run
from redraft.training.runs.run import Run

_TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|role_end|>", "<end_of_turn>", "<|end|>")


@dataclass(frozen=True)
class TextModel:
    """A model, and the run that made it, if it was one of ours."""

    model: DiffusionLM
    run: Run | None = None
    step: int | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        """The digest that results are filed under."""
        return serialization.digest(self.model.config) if self.run is None else self.run.digest

    @property
    def place(self) -> str:
        """How a message names it."""
        return "this model" if self.path is None else str(self.path)

    @property
    def sampler(self) -> Sampler:
        """The run's own sampler."""
        if self.run is not None:
            return self.run.sampler
        if self.model.block is None:
            return Ancestral()
        return Blocks(Ancestral(1) if self.model.block == 1 else Ancestral(), stop=True)

    @property
    def always(self) -> int | None:
        """The length of every canvas in training, if the network can see what follows a text."""
        if self.run is None or self.model.block is not None or self.run.framing.padded:
            return None
        if self.model.config.network.lora is not None:  # it was a causal model, which has read rows of all lengths
            return None
        return self.run.framing.length

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that the model knows, in their order; where no run names them, their numbers."""
        data = None if self.run is None else self.run.data
        known = range(self.model.config.network.classes or 0)
        return data.classes if known and isinstance(data, HasClasses) else tuple(map(str, known))

    @property
    def compares(self) -> bool:
        """Whether the network has learnt to do without its condition, as far as a run tells."""
        run = self.run
        return run is None or not isinstance(run.objective, Objective) or run.objective.drop_condition > 0

    @property
    def answers(self) -> bool:
        """Whether the model answers sources, and writes nothing without one."""
        asked = self.run.framing.asked if self.run is not None else self.model.encoder is not None
        return asked and not self.classes

    def question(self, source: str | None) -> list[tuple[int, ...]]:
        """The ids of a source as the question of a chat, for models trained so; nothing for others."""
        framing = None if self.run is None else self.run.framing
        if source is None or not isinstance(framing, ChatRows) or not isinstance(self.tokenizer, HubTokenizer):
            return []
        return [tuple(prompt_ids(self.tokenizer, [{"role": "user", "content": source}]))]

    @property
    def turn_ends(self) -> tuple[int, ...]:
        """The ids of special tokens that end a turn of a chat, where the tokenizer has some."""
        hub = self.model.tokenizer
        known = hub.specials if isinstance(hub, HubTokenizer) else ()
        return tuple(token for name in _TURN_ENDS if name in known and (token := hub.id_of(name)) is not None)  # type: ignore[union-attr]

    @property
    def tokenizer(self) -> Tokenizer:
        if self.model.tokenizer is None:
            raise ValueError(
                f"{self.place} has no tokenizer, so it can neither read nor write text; put tokenizer.json there"
            )
        return self.model.tokenizer

    def used(self, text: str) -> int:
        """How many tokens a given text has, start token included; every word of it must be known."""
        ids, tokenizer = self.tokenizer.encode(text), self.tokenizer
        if any(tokenizer.piece(token) == UNKNOWN for token in set(ids)):
            self._require_known(text)
        return len(ids) + (self.model.config.vocab.bos is not None)

    def _require_known(self, text: str) -> None:
        tokenizer = self.tokenizer

        def is_strange(word: str) -> bool:
            return UNKNOWN in map(tokenizer.piece, tokenizer.encode(word))

        strange = [word for word in dict.fromkeys(text.split()) if is_strange(word)]
        bare = [word.strip(punctuation) for word in strange[:5]]  # unless it is the sign that is strange
        words = [inner if is_strange(inner) else word for inner, word in zip(bare, strange, strict=False)]
        more = f" and {len(strange) - 5} more words" if len(strange) > 5 else ""
        known = tokenizer.words if isinstance(tokenizer, WordTokenizer) else ()
        close = [match for word in words for match in get_close_matches(word, known, n=2)]
        advice = f"say {', '.join(close)}" if close else "`redraft generate` without a prompt shows words that it knows"
        if strange:
            raise ValueError(f"this model does not know {', '.join(map(repr, words))}{more}; use its words, {advice}")

    def row(self, text: str, argument: str = "texts") -> list[int]:
        """The row of a text, as in training: start and end tokens, and a tail of end tokens where rows had one."""
        self.used(text)
        ids, vocab = self.tokenizer.encode(text), self.model.config.vocab
        framing = None if self.run is None else self.run.framing
        bos, eos = ([] if token is None else [token] for token in (vocab.bos, vocab.eos))
        row = ids if isinstance(framing, PackedRows) else [*bos, *ids, *eos]
        if not row[len(bos) :]:
            raise ArgumentError(argument, f"{argument}=…: {text!r:.60} has no token to read; give a text")
        tail = isinstance(framing, DocumentRows) and framing.tail
        if framing is not None and tail and len(row) > framing.length:
            raise ArgumentError(
                argument,
                f"{argument}=…: a text of {len(ids):,} tokens is longer than the rows of this model, {framing.length}",
            )
        return row + eos * (framing.length - len(row)) if framing is not None and tail else row

    def hole(self, size: int) -> int | VariableHole:
        """A hole of `size` tokens; for insertion models of at most so many."""
        return make_hole(self.model.process, size)

    @property
    def bytes_per_token(self) -> int:
        """What a sampler holds at once of a token: log-weights (thrice, and their sums in float64), states, cache."""
        network, vocab = self.model.config.network, self.model.config.vocab.size
        return 28 * vocab + (64 + 8 * network.layers) * network.width + 64

    @property
    def free(self) -> int | None:
        """Free memory of the model's device in bytes; None: unknown."""
        return free_memory(next(self.model.parameters()).device)


ModelOrPath: TypeAlias = DiffusionLM | TextModel | str | Path


def as_text_model(model: ModelOrPath) -> TextModel:
    """A model to write with: one that is loaded, or the directory of one."""
    if isinstance(model, TextModel):
        return model
    if isinstance(model, DiffusionLM):
        return TextModel(model)
    if isinstance(model, str | Path):
        return open_model(model)
    raise ValueError(f"{type(model).__name__} is not a model; give a DiffusionLM, or the directory of a trained one")


def open_model(
    path: str | Path,
    trust: tuple[str, ...] = (),
    *,
    mask: int | str | None = None,
    attention: str | None = None,
    codec: bool = False,
) -> TextModel:
    """What a directory holds, on the best device; the arguments are those of `redraft.load`.

    codec: whether a codec will do whose diffusion is not trained yet; it can noise texts, but not write any
    """
    found = load_with_run(path, best_device(), trust, mask=mask, attention=attention)
    if not codec and found.run is not None and isinstance(found.run.objective, CodecObjective):
        raise CheckpointError(
            f"{path} is only a codec; train the diffusion of its latents: redraft train … --base {path}"
        )
    return TextModel(found.model, found.run, found.step, Path(path))
