"""Run: an experiment as one value.

Presets are functions that return a Run; to vary one, use `replace(run, …)`.
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
from redraft.training.data.pairs import class_names
from redraft.training.data.sources import Corpus, InfiniteCorpus
from redraft.training.objectives.objective import Objective, TrainingGoal


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW, optionally with Muon for the hidden matrices; linear warm-up, then a cosine down to `floor` · lr."""

    lr: float = 3e-4
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


_MONITORING = ("log_every", "save_every", "eval_every", "eval_rows", "samples", "keep_checkpoints", "tensorboard")


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
    steps: int = 1000
    batch: int = 64  # rows per step, over all workers
    micro_batches: int = 1  # micro-batches per worker and step (gradient accumulation)
    seed: int = 0
    base: str | None = None  # path of a model to start from; weights that only the new model has are initialized
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 if a benchmark finds it faster here
    compile: bool = False  # compile the network's blocks; rounding may differ after a restart
    recompute: bool = False  # gradient checkpointing: less memory, more time
    shard: bool = False  # FSDP2: shard weights and optimizer state over the workers
    log_every: int = 10
    save_every: int = 200
    eval_every: int = 500
    eval_rows: int = 128
    samples: int = 4  # texts generated at each evaluation
    keep_checkpoints: int = 2  # number of newest checkpoints to keep
    tensorboard: bool = False  # log to TensorBoard too; metrics.jsonl is always written

    def __post_init__(self) -> None:
        if self.model.vocab.size != self.tokenizer.vocab.size:
            raise ValueError(
                f"the model has {self.model.vocab.size} token ids, the tokenizer {self.tokenizer.vocab.size}; "
                "build the process with tokenizer.vocab"
            )
        self._require_classes()
        counts = (
            "steps",
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
    def digest(self) -> str:
        """Twelve hexadecimal digits that identify the run by what determines its weights, not by its monitoring."""
        return serialization.digest(self, besides=_MONITORING)

    def is_held(self, described: serialization.JSON) -> bool:
        """Whether a saved config describes this run, up to monitoring."""
        try:
            other = serialization.from_json(described, serialization.external_modules(serialization.to_json(self)))
        except serialization.ConfigError:
            return False
        return isinstance(other, Run) and other.digest == self.digest
