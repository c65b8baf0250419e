"""A model ready for the tasks: its weights, plus the rows, classes and sampler of the run that trained it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from string import punctuation
from typing import TypeAlias

import torch

from redraft.core.hardware.system import free_memory
from redraft.core.text.tokenizers import UNKNOWN, Tokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.models.canvas_builder import VariableHole, make_hole
from redraft.models.checkpoints import serialization
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.cpu_weights import WeightFormat, with_weight_format
from redraft.models.diffusion_lm import DiffusionLM
from redraft.tasks.arguments.setting import ArgumentError
from redraft.training.data.pairs import class_names
from redraft.training.objectives.objective import Objective
from redraft.training.objectives.parts import CodecObjective
from redraft.training.runs.loading import load_with_run
from redraft.training.runs.run import Run

_TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|role_end|>", "<end_of_turn>", "<|end|>")


@dataclass(frozen=True)
class TextModel:
    """A model with the run that trained it; `run` is None for imported models."""

    lm: DiffusionLM
    """The network with its process, head, codec and tokenizer."""
    run: Run | None = None
    """The experiment that trained it."""
    step: int | None = None
    """Step of the checkpoint; None for exported and imported models."""
    path: Path | None = None
    """The directory it was loaded from."""

    def __repr__(self) -> str:
        """The model's size, process, tokenizer and origin, on one line."""
        tokenizer, device = self.lm.tokenizer, next(self.lm.parameters()).device
        size = sum(p.numel() for p in self.lm.parameters())
        facts = [
            f"{size / 1e6:,.3g} M parameters" if size >= 1e6 else f"{size:,} parameters",
            type(self.lm.process).__name__,
            f"{type(tokenizer).__name__} of {tokenizer.vocab.size:,} ids" if tokenizer else "no tokenizer",
            f"run {self.run.digest}" if self.run is not None else "not trained by Redraft",
            *([] if self.step is None else [f"step {self.step:,}"]),
            str(device),
        ]
        name = "" if self.path is None else f"{str(self.path)!r}: "
        return f"{type(self).__name__}({name}{', '.join(facts)})"

    @property
    def name(self) -> str:
        """Digest of the run, or of the model config without a run; identifies results."""
        return serialization.digest(self.lm.config) if self.run is None else self.run.digest

    @property
    def display_name(self) -> str:
        """Name of the model in messages: its path, or "this model"."""
        return "this model" if self.path is None else str(self.path)

    @property
    def sampler(self) -> Sampler:
        """The sampler of the run; without a run, `Ancestral`, in blocks if the network is block-causal."""
        if self.run is not None:
            return self.run.sampler
        if self.lm.block is None:
            return Ancestral()
        return Blocks(Ancestral(1) if self.lm.block == 1 else Ancestral(), stop=True)

    @property
    def full_row_length(self) -> int | None:
        """Row length in training if the model has full attention and only ever saw full rows; else None."""
        if self.run is None or self.lm.block is not None or self.run.framing.padded:
            return None
        if self.lm.config.network.lora is not None:  # adapted from a causal model, which has seen rows of all lengths
            return None
        return self.run.framing.length

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the model's classes, in order; their indices as strings if no run names them."""
        names = None if self.run is None else class_names(self.run.data)
        indices = range(self.lm.config.network.classes or 0)
        return names if indices and names is not None else tuple(map(str, indices))

    @property
    def condition_optional(self) -> bool:
        """Whether the model was also trained without its condition, as classifier-free guidance needs.

        Models without a run count as trained so.
        """
        run = self.run
        return run is None or not isinstance(run.objective, Objective) or run.objective.drop_condition > 0

    @property
    def needs_source(self) -> bool:
        """Whether the model is seq2seq: it answers a source and cannot write without one."""
        conditional = self.run.framing.conditional if self.run is not None else "encoder" in self.lm.parts
        return conditional and not self.classes

    @property
    def compresses(self) -> bool:
        """Whether its codec compresses whole texts, so that it cannot keep given tokens."""
        return self.lm.codec is not None and self.lm.codec.latents is not None

    def source_turn(self, source: str | None) -> list[tuple[int, ...]]:
        """The ids of the source as the user's chat message, in a list; an empty list unless trained on chats."""
        framing = None if self.run is None else self.run.framing
        turn = None if source is None or framing is None else framing.chat_turn(source, self.tokenizer)
        return [] if turn is None else [tuple(turn)]

    @property
    def turn_ends(self) -> tuple[int, ...]:
        """Ids of the tokenizer's special tokens that end a chat turn."""
        if (tokenizer := self.lm.tokenizer) is None:
            return ()
        ids = [tokenizer.id_of(name) for name in _TURN_ENDS if name in tokenizer.special_texts]
        return tuple(token for token in ids if token is not None)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises if the model has none."""
        if self.lm.tokenizer is None:
            raise ValueError(
                f"{self.display_name} has no tokenizer, so it can neither read nor write text; add a tokenizer.json"
            )
        return self.lm.tokenizer

    def prompt_ids(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        """The ids of a prompt: of a text with the start token, if there is one; given ids as they are.

        Raises if a word is not in the vocabulary, or an id is not one of a text.
        """
        vocab = self.lm.config.vocab
        if isinstance(prompt, str):
            self.token_count(prompt)
            return (*(() if vocab.bos is None else (vocab.bos,)), *self.tokenizer.encode(prompt))
        if wrong := [token for token in prompt if not 0 <= token < vocab.size or token == vocab.mask]:
            raise ArgumentError(
                "prompts", f"{wrong[0]} is not the id of a token of this model; ids are from 0 to {vocab.size - 1}"
            )
        return tuple(prompt)

    def token_count(self, text: str) -> int:
        """Number of tokens of a text, including the start token. Raises if a word is not in the vocabulary."""
        ids, tokenizer = self.tokenizer.encode(text), self.tokenizer
        if any(tokenizer.piece(token) == UNKNOWN for token in set(ids)):
            self._require_known(text)
        return len(ids) + (self.lm.config.vocab.bos is not None)

    def _require_known(self, text: str) -> None:
        tokenizer = self.tokenizer

        def is_unknown(word: str) -> bool:
            return UNKNOWN in map(tokenizer.piece, tokenizer.encode(word))

        unknown = [word for word in dict.fromkeys(text.split()) if is_unknown(word)]
        bare = [word.strip(punctuation) for word in unknown[:5]]  # without punctuation, unless it alone is unknown
        words = [inner if is_unknown(inner) else word for inner, word in zip(bare, unknown, strict=False)]
        more = f" and {len(unknown) - 5} more words" if len(unknown) > 5 else ""
        close = [match for word in words for match in get_close_matches(word, tokenizer.known_words, n=2)]
        advice = f"such as {', '.join(close)}" if close else "`redraft generate` without a prompt shows some"
        if unknown:
            raise ValueError(
                f"this model does not know {', '.join(map(repr, words))}{more}; use words from its vocabulary, {advice}"
            )

    def encode_row(self, text: str, argument: str = "texts") -> list[int]:
        """Ids of a text framed as in training: start and end tokens, padded with end tokens if training rows were."""
        self.token_count(text)
        ids, vocab = self.tokenizer.encode(text), self.lm.config.vocab
        framing = None if self.run is None else self.run.framing
        bos, eos = ([] if token is None else [token] for token in (vocab.bos, vocab.eos))
        try:
            row = [*bos, *ids, *eos] if framing is None else framing.text_row(ids, vocab)
        except ValueError as error:
            raise ArgumentError(argument, f"{argument}=…: {error}") from None
        if not row[len(bos) :]:
            raise ArgumentError(argument, f"{argument}=…: {text!r:.60} has no tokens; give a text that is not empty")
        return row

    def hole(self, size: int) -> int | VariableHole:
        """A hole of `size` tokens; for insertion models, of at most `size`."""
        return make_hole(self.lm.process, size)

    @property
    def bytes_per_token(self) -> int:
        """Estimated memory per token while sampling: log-weights (three copies, sums in float64), states and cache."""
        network, vocab = self.lm.config.network, self.lm.config.vocab.size
        return 28 * vocab + (64 + 8 * network.layers) * network.width + 64

    @property
    def free_memory(self) -> int | None:
        """Free memory of the model's device in bytes; None if unknown."""
        return free_memory(next(self.lm.parameters()).device)


ModelOrPath: TypeAlias = DiffusionLM | TextModel | str | Path


def as_text_model(model: ModelOrPath) -> TextModel:
    """Wraps a loaded model, or loads one from its directory."""
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
    device: str | torch.device = "auto",
    dtype: torch.dtype | None = None,
    mask: int | str | None = None,
    attention: str | None = None,
    weights: WeightFormat | None = None,
    codec: bool = False,
) -> TextModel:
    """Loads the model of a directory; the arguments are those of `redraft.load`.

    codec: accept a codec whose diffusion is not trained yet; it can noise texts, but not generate any
    """
    loaded = load_with_run(path, device, trust, dtype=dtype, mask=mask, attention=attention)
    if not codec and loaded.run is not None and isinstance(loaded.run.objective, CodecObjective):
        raise CheckpointError(
            f"{path} is only a codec; train a diffusion model on its latents: redraft train … --base {path}"
        )
    lm = loaded.model if weights is None else with_weight_format(loaded.model, weights)
    return TextModel(lm, loaded.run, loaded.step, Path(path))
