"""Run: a whole experiment as one value, and the models that runs leave behind.

Presets are functions that return a Run; variants are `replace(run, …)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from redraft.data import Corpus, Endless, Framing
from redraft.model import DiffusionLM, DiffusionLMConfig
from redraft.objectives import Autoencode, Mistakes, Objective
from redraft.runs import checkpoint, config, foreign, stored
from redraft.runs.stored import Checkpoint, CheckpointError
from redraft.samplers import Ancestral, Sampler
from redraft.text import Tokenizer
from redraft.types import ABOVE_0, BELOW_1, FINITE, require_range


@dataclass(frozen=True)
class Optimiser:
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
        require_range(self, ABOVE_0, math.inf, "clip")
        if not all(0 <= beta <= BELOW_1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}; each must be at least 0 and below 1")


WATCHING = ("log_every", "save_every", "eval_every", "eval_rows", "samples", "keep", "tensorboard")


@dataclass(frozen=True)
class Run:
    """A whole experiment: what decides the weights, and (from `log_every` on) how the training is watched."""

    model: DiffusionLMConfig
    data: Corpus | Endless
    tokenizer: Tokenizer
    framing: Framing
    objective: Objective | Mistakes | Autoencode = field(default_factory=Objective)
    sampler: Sampler = field(default_factory=Ancestral)
    optimiser: Optimiser = field(default_factory=Optimiser)
    steps: int = 1000
    batch: int = 64  # rows of a step, over all workers
    micro: int = 1  # parts of a worker's rows: gradient accumulation
    seed: int = 0
    base: str | None = None  # a model to begin with: its weights, wherever ours have the same name
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 where it is faster, by a trial
    compile: bool = False  # the blocks of the network; after a restart it may round differently
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
        counts = ("steps", "batch", "micro", "log_every", "save_every", "eval_every", "eval_rows", "keep")
        require_range(self, 1, math.inf, *counts)
        require_range(self, 0, math.inf, "samples")
        require_range(self, 0, 2**63 - 1, "seed")

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name the run: what decides its weights, not how it is watched."""
        described = config.to_json(self)
        return config.fingerprint({key: value for key, value in described.items() if key not in WATCHING})

    def is_held(self, described: config.JSON) -> bool:
        """Whether a saved config is this run, though perhaps watched otherwise, or written by an older version."""
        try:
            other = config.from_json(described, config.modules(config.to_json(self)))
        except config.ConfigError:
            return False
        return isinstance(other, Run) and other.digest == self.digest


def parameters(model: DiffusionLMConfig) -> int:
    """How many numbers a model has, counted without making them."""
    with torch.device("meta"):
        return sum(p.numel() for p in DiffusionLM(model).parameters())


def least_memory(run: Run, world: int = 1) -> dict[str, int]:
    """Bytes that a worker needs at the very least, by what asks for them.

    Each weight has an average, a gradient and a moment beside it; each layer keeps the states of all tokens for the
    backward pass, unless they are computed again.
    """
    network, length = run.model.network, run.framing.length
    rows, kept = -(-run.batch // (world * run.micro)), 1 if run.recompute else network.layers
    return {
        "model": 16 * parameters(run.model) // (world if run.shard else 1),
        "batch": rows * length * (16 + 4 * network.width * kept),
        "eval_rows": run.eval_rows * length * 9,
        "samples": run.samples * length * (16 + 4 * network.width),
    }


@dataclass(frozen=True)
class Bundle:
    """A model that no run of ours made: all that an export of it says."""

    model: DiffusionLMConfig
    tokenizer: Tokenizer | None = None


def load(path: str | Path, device: torch.device | str = "cpu", trust: tuple[str, ...] = ()) -> DiffusionLM:
    """The model of a run's directory (its newest sound checkpoint), of one checkpoint, or of an exported directory.

    The weights are the averaged ones. Nothing but our own classes is built, unless `trust` names further modules.
    Directories of other projects are recognised by their config.json: MDLM, SEDD, UDLM, GIDD, BD3-LM, FlexMDM, LLaDA,
    Dream, DiffuGPT, DiffuLLaMA.
    """
    path = Path(path)
    if not path.is_dir():
        foreign.refuse_pickles(path)
        raise CheckpointError(f"{path} is no directory; give the directory of a run, say runs/demo")
    if (path / stored.MANIFEST).exists() and (path / "state.json").exists():
        return _from_checkpoint(stored.read(path), device, trust)
    if not (path / "config.json").exists():
        foreign.refuse_pickles(path)
        return _from_checkpoint(newest(path), device, trust)
    if "class" not in foreign.settings(path):
        found = foreign.read(path)
        return assemble(Bundle(found.model, found.tokenizer), found.weights, device)
    exported = stored.import_model(path)
    return assemble(_described(exported.config, trust), exported.tensors, device)


@torch.no_grad()
def begin_with(model: DiffusionLM, path: str | Path, part: nn.Module | None = None) -> None:
    """Takes over the weights of the model at `path`; whatever only ours has stays as it is.

    `part`: a module of `model`, such as its codec, if only its weights are wanted.
    """
    if not Path(path).is_dir():
        raise CheckpointError(f"the base {path} is no directory; train it first, or name another with --base DIR")
    ours, base, wanted = dict(model.named_parameters()), load(path), model if part is None else part
    place = next(name for name, module in model.named_modules() if module is wanted)
    if place not in dict(base.named_modules()):
        raise CheckpointError(f"{path} is no base for this model: it has no {place}; build both alike")
    theirs = dict(base.get_submodule(place).named_parameters(prefix=place))
    wrong = [n for n, p in theirs.items() if n not in ours or p.shape != ours[n].shape]
    if wrong:
        raise CheckpointError(f"{path} is no base for this model: it has another {wrong[0]}; build both alike")
    for name, p in theirs.items():
        ours[name].copy_(p)


def newest(path: Path) -> Checkpoint:
    """The newest sound checkpoint of a run's directory."""
    if (found := stored.latest(path)) is None:
        raise CheckpointError(f"{path} is no model: it holds neither step-… directories nor config.json")
    return stored.read(found)


def export(path: str | Path, model: DiffusionLM, run: Run | None = None, card: str = "") -> Path:
    """A directory to give away: config.json (the run that made the model, or the model), weights, README.md."""
    weights = {n: p.detach() for n, p in model.named_parameters()}
    origin = Bundle(model.config, model.tokenizer) if run is None else run
    return checkpoint.export(Path(path), weights, config.to_json(origin), None, card)


def assemble(run: Run | Bundle, weights: Mapping[str, Tensor], device: torch.device | str) -> DiffusionLM:
    """The model of a run with given weights, ready to be used."""
    with torch.device("meta"):  # no time is spent on weights that are overwritten
        model = DiffusionLM(run.model, run.tokenizer)
    needed, given = ({n: tuple(w.shape) for n, w in named.items()} for named in (model.state_dict(), weights))
    if needed != given:
        name = min(dict(needed.items() ^ given.items()))
        raise CheckpointError(
            f"weights and config do not belong together: {name} is {given.get(name, 'missing')}, "
            f"the config needs {needed.get(name, 'no such thing')}"
        )
    if (wrong := stored.not_finite(weights)) is not None:
        raise CheckpointError(f"{wrong} has values that are nan or infinite; use an earlier checkpoint, or train anew")
    model.to_empty(device=device)
    model.load_state_dict(dict(weights))
    return model.eval()


def _from_checkpoint(saved: Checkpoint, device: torch.device | str, trust: tuple[str, ...]) -> DiffusionLM:
    if "config" not in saved.documents or "model" not in saved.tensors:
        raise CheckpointError(f"the checkpoint of step {saved.step} lacks config.json or model.safetensors")
    return assemble(_described(saved.documents["config"], trust), saved.tensors["model"], device)


def _described(data: config.JSON, trust: tuple[str, ...]) -> Run | Bundle:
    found = config.from_json(data, trust)
    if not isinstance(found, Run | Bundle):
        raise CheckpointError(f"config.json describes a {type(found).__name__}; it must describe a Run or a Bundle")
    return found
