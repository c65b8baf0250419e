"""Run: a whole experiment as one value.

Presets are functions that return a Run; variants are `replace(run, …)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from redraft.core.text.tokenizers import Tokenizer
from redraft.core.vocab import ABOVE_ZERO, BELOW_ONE, FINITE, require_range
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.models.checkpoints import serialization
from redraft.models.config import DiffusionLMConfig
from redraft.training.data.framing import Framing
from redraft.training.data.pairs import HasClasses
from redraft.training.data.sources import Corpus, InfiniteCorpus
from redraft.training.objectives.objective import Objective, TrainingGoal


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW, for the hidden matrices also Muon; warm-up, then a cosine down to `floor` of the rate (1: constant)."""

    lr: float = 3e-4
    muon: float | None = None  # rate of Muon on the hidden matrices; None: AdamW for all
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup: int = 0
    floor: float = 1.0
    clip: float = 1.0  # largest norm of the gradient
    ema: float = 0.9999  # decay of the averaged weights, which are the ones to use

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "lr", "muon", "eps", "weight_decay")
        require_range(self, 0, math.inf, "warmup")
        require_range(self, 0, 1, "floor", "ema")
        require_range(self, ABOVE_ZERO, math.inf, "clip")
        if not all(0 <= beta <= BELOW_ONE for beta in self.betas):
            raise ValueError(f"betas={self.betas}; each must be at least 0 and below 1")


_WATCHING = ("log_every", "save_every", "eval_every", "eval_rows", "samples", "keep", "tensorboard")


@dataclass(frozen=True)
class Run:
    """A whole experiment: what decides the weights, and (from `log_every` on) how the training is watched."""

    model: DiffusionLMConfig
    data: Corpus | InfiniteCorpus
    tokenizer: Tokenizer
    framing: Framing
    objective: TrainingGoal = field(default_factory=Objective)
    sampler: Sampler = field(default_factory=Ancestral)
    optimiser: OptimizerConfig = field(default_factory=OptimizerConfig)
    steps: int = 1000
    batch: int = 64  # rows of a step, over all workers
    micro: int = 1  # parts of a worker's rows: gradient accumulation
    seed: int = 0
    base: str | None = None  # a model to start from: its weights, wherever ours have the same name
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 where it is faster, by a trial
    compile: bool = False  # compile the network's blocks; after a restart rounding may differ
    recompute: bool = False  # gradient checkpointing: less memory, more time
    shard: bool = False  # FSDP2: weights and optimiser spread over the workers
    log_every: int = 10
    save_every: int = 200
    eval_every: int = 500
    eval_rows: int = 128
    samples: int = 4  # texts written at each evaluation
    keep: int = 2  # checkpoints
    tensorboard: bool = False  # beside metrics.jsonl, which is always written

    def __post_init__(self) -> None:
        if self.model.vocab.size != self.tokenizer.vocab.size:
            raise ValueError(
                f"the model knows {self.model.vocab.size} states, the tokenizer {self.tokenizer.vocab.size}; "
                "build the process with tokenizer.vocab"
            )
        self._require_classes()
        counts = ("steps", "batch", "micro", "log_every", "save_every", "eval_every", "eval_rows", "keep")
        require_range(self, 1, math.inf, *counts)
        require_range(self, 0, math.inf, "samples")
        require_range(self, 0, 2**63 - 1, "seed")

    def _require_classes(self) -> None:
        """What tells classes apart, or is told them, knows as many as the data has."""
        if not isinstance(self.data, HasClasses):
            return
        own = len(self.data.classes)
        known = {"attributes": self.model.attributes or None, "network.classes": self.model.network.classes}
        for name, count in known.items():
            if count not in (None, own):
                raise ValueError(f"model.{name}={count}, but the data has {own} classes; set model.{name}={own}")

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name the run: what decides its weights, not how it is watched."""
        return serialization.digest(self, besides=_WATCHING)

    def is_held(self, described: serialization.JSON) -> bool:
        """Whether a saved config is this run, perhaps watched differently."""
        try:
            other = serialization.from_json(described, serialization.external_modules(serialization.to_json(self)))
        except serialization.ConfigError:
            return False
        return isinstance(other, Run) and other.digest == self.digest
