"""Run: an experiment as one value.

Presets are functions that return a Run; to vary one, use `replace(run, …)`, and `run.on(…)` for other text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from redraft.core.processes.base import Process
from redraft.core.text.tokenizers import CharTokenizer, Tokenizer
from redraft.core.vocab import ABOVE_ZERO, BELOW_ONE, FINITE, Vocab, require_range
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.models.checkpoints import serialization
from redraft.models.config import DiffusionLMConfig
from redraft.models.networks.config import TransformerConfig
from redraft.training.data.framing import DocumentRows, Framing, PackedRows
from redraft.training.data.local import open_corpus
from redraft.training.data.pairs import PairCorpus, class_names
from redraft.training.data.sources import Corpus, InfiniteCorpus, KnownDistribution
from redraft.training.data.vocabulary import make_tokenizer, spells
from redraft.training.objectives.objective import Objective, TrainingGoal


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW, optionally with Muon for the hidden matrices; linear warm-up, then a cosine down to `floor` · lr."""

    lr: float = 3e-4  # learning rate of AdamW
    muon: float | None = None  # learning rate of Muon on the hidden matrices; None for AdamW everywhere
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup: int = 0  # number of warm-up steps
    floor: float = 1.0  # final learning rate as a fraction of the full one; 1 for a constant rate
    clip: float = 1.0  # maximum gradient norm
    ema: float = 0.9999  # decay of the averaged weights, which evaluation and `load` use

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "lr", "muon", "eps", "weight_decay")
        require_range(self, 0, math.inf, "warmup")
        require_range(self, 0, 1, "floor", "ema")
        require_range(self, ABOVE_ZERO, math.inf, "clip")
        if not all(0 <= beta <= BELOW_ONE for beta in self.betas):
            raise ValueError(f"betas={self.betas}; each must be at least 0 and below 1")


_MOST_STEPS = 10**8  # many times what any language model took, so more is a typo
_MONITORING = (
    *("log_every", "save_every", "eval_every", "eval_rows", "samples", "keep_checkpoints", "keep_best"),
    *("tensorboard", "wandb", "trackio"),
)


@dataclass(frozen=True)
class Run:
    """An experiment: what determines the weights, and (from `log_every` on) how the training is monitored."""

    model: DiffusionLMConfig
    data: Corpus | InfiniteCorpus
    tokenizer: Tokenizer
    framing: Framing
    objective: TrainingGoal = field(default_factory=Objective)
    sampler: Sampler = field(default_factory=Ancestral)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    steps: int = 1000  # training steps
    batch: int = 64  # rows per step, over all workers
    micro_batches: int = 1  # micro-batches per worker and step (gradient accumulation)
    seed: int = 0  # seed of weights, data order, noise and samples
    base: str | None = None  # path of a model to start from; weights that only the new model has are initialized
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 if a benchmark finds it faster here
    compile: bool = False  # compile the network's blocks; rounding may differ after a restart
    recompute: bool = False  # gradient checkpointing: less memory, more time
    shard: bool = False  # FSDP2: shard weights and optimizer state over the workers
    log_every: int = 10  # steps between lines of metrics.jsonl
    save_every: int = 200  # steps between checkpoints
    eval_every: int = 500  # steps between evaluations on held-out text
    eval_rows: int = 128  # held-out rows per evaluation
    samples: int = 4  # texts generated at each evaluation
    keep_checkpoints: int = 2  # number of newest checkpoints to keep
    keep_best: bool = True  # keep the checkpoint with the lowest held-out bits too, in best/; loading prefers it
    tensorboard: bool = False  # log to TensorBoard too; metrics.jsonl is always written
    wandb: bool = False  # log to Weights & Biases too; WANDB_MODE=offline needs no account
    trackio: bool = False  # log to trackio too, a local dashboard

    def __post_init__(self) -> None:
        if isinstance(self.data, str | Path):
            raise ValueError(f"data={str(self.data)!r:.60} is a name, not a corpus; use run.on({str(self.data)!r:.60})")
        if self.model.vocab.size != self.tokenizer.vocab.size:
            raise ValueError(
                f"the model has {self.model.vocab.size} token ids, the tokenizer {self.tokenizer.vocab.size}; "
                "build the process with tokenizer.vocab"
            )
        self._require_classes()
        require_range(self, 1, _MOST_STEPS, "steps")
        counts = (
            "batch",
            "micro_batches",
            "log_every",
            "save_every",
            "eval_every",
            "eval_rows",
            "keep_checkpoints",
        )
        require_range(self, 1, math.inf, *counts)
        require_range(self, 0, math.inf, "samples")
        require_range(self, 0, 2**63 - 1, "seed")

    def _require_classes(self) -> None:
        """Raises unless data, network and attribute classifier agree on the number of classes."""
        if (names := class_names(self.data)) is None:
            return
        classes = len(names)
        counts = {
            **{f"parts.{part.name}.classes": part.label_count for part in self.model.parts},
            "network.classes": self.model.network.classes,
        }
        for name, count in counts.items():
            if count not in (None, classes):
                raise ValueError(
                    f"model.{name}={count}, but the data has {classes} classes; set model.{name}={classes}"
                )

    @property
    def distribution(self) -> KnownDistribution | None:
        """The true distribution of the documents in the rows; None if it is unknown or rows cut documents."""
        return self.data if self.framing.whole_documents and isinstance(self.data, KnownDistribution) else None

    @property
    def assumed(self) -> tuple[str, ...]:
        """Assumptions made about the model: none, since a run describes it completely."""
        return ()

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the run by what determines its weights, not by its monitoring."""
        return serialization.digest(self, besides=_MONITORING)

    def matches(self, saved: serialization.JSON) -> bool:
        """Whether a saved config describes this run; settings that only monitor the training may differ."""
        try:
            other = serialization.from_json(saved, serialization.external_modules(serialization.to_json(self)))
        except serialization.ConfigError:
            return False
        return isinstance(other, Run) and other.digest == self.digest

    # --- other text: data, tokenizer, framing and positions change together ---

    def on(
        self,
        data: Corpus | InfiniteCorpus | str | Path | Sequence[str | Path],
        tokenizer: Tokenizer | str | None = None,
        length: int | None = None,
    ) -> Run:
        """This run on other text.

        Args:
            data: a file or a directory of text, several of them, the name of a corpus, or a corpus
            tokenizer: a tokenizer, or the kind to make for this text: chars, bytes, words:N, bpe:N, or the path of a
                tokenizer.json. None keeps that of the run if it spells all of the text; otherwise it is chars for runs
                with characters and bpe for others
            length: tokens per row; None keeps the length of the run
        """
        names = [data] if isinstance(data, str | Path) else data if isinstance(data, Sequence) else None
        run = self._on_corpus(open_corpus([*map(str, names)]) if names is not None else data)  # type: ignore[arg-type]
        run = run if length is None else run.with_length(length)
        if tokenizer is None:
            default = "chars" if isinstance(run.tokenizer, CharTokenizer) else "bpe"
            tokenizer = run.tokenizer if spells(run.tokenizer, run.data) else default
        return run.with_tokenizer(make_tokenizer(tokenizer, run.data) if isinstance(tokenizer, str) else tokenizer)

    def _on_corpus(self, data: Corpus | InfiniteCorpus) -> Run:
        """Replaces the data: one document per row for an infinite corpus, packed rows for any other.

        Packed rows start in the middle of a text, where the position in the row says little, so the network gets rotary
        positions, which encode distances. On 0.9 MB of English `mdlm_tiny` then learns in half as many steps.
        """
        if data == self.data:
            return self
        if self.framing.conditional and not isinstance(data, PairCorpus):
            raise ValueError("this run trains on pairs of source and target, but the data has no pairs")
        if isinstance(data, InfiniteCorpus):
            return replace(self, data=data, framing=DocumentRows(self.framing.length, fill_with_eos=True))
        network = replace(self.model.network, rotary=self.model.network.rotary or TransformerConfig.rotary)
        model = replace(self.model, network=network)
        return replace(self, model=model, data=data, framing=PackedRows(self.framing.length))

    def with_tokenizer(self, tokenizer: Tokenizer) -> Run:
        """Replaces the tokenizer; the process gets its vocabulary, and sizes and special tokens follow from that."""
        if tokenizer == self.tokenizer:
            return self
        network = self.model.network
        if network.pattern.start is not None:  # an id of the old vocabulary
            network = replace(network, pattern=replace(network.pattern, start=None))  # type: ignore[type-var]
        model = replace(self.model, process=_with_vocab(self.model.process, tokenizer.vocab), network=network)
        return replace(self, model=model, tokenizer=tokenizer)

    def with_length(self, length: int) -> Run:
        """Changes the row length, and the number of learned positions by the same amount."""
        positions, added = self.model.network.positions, length - self.framing.length
        network = replace(self.model.network, positions=None if positions is None else positions + added)
        framing = replace(self.framing, length=length)  # type: ignore[type-var]
        return replace(self, model=replace(self.model, network=network), framing=framing)


def _with_vocab(process: Process, vocab: Vocab) -> Process:
    """Replaces the vocabulary of a process, and of the processes that it wraps."""
    values = {field.name: getattr(process, field.name) for field in fields(process)}  # type: ignore[arg-type]
    changed: dict[str, Any] = {n: _with_vocab(v, vocab) for n, v in values.items() if isinstance(v, Process)}
    return replace(process, **changed, **({"vocab": vocab} if "vocab" in values else {}))  # type: ignore[type-var]
