"""Checkpoints of other projects → our model, recognised by their settings.

`networks.pretrained` knows what the tensors are; here stands what their numbers mean: the process, the head, and what
the network is told of the time. Read are `config.json`, safetensors (whole or in shards) and, where it lies beside
them, `tokenizer.json`; nothing is unpickled or executed.

Most originals keep σ = −log α finite by an ε: α = 1 − (1 − ε) t. Here ε enters only what the network is told; the
process has α = 1 − t. Its reverse steps and weights are the same, and its noise forgets the tokens, as the bound asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from redraft.heads import Head, Score, Shift, Softmax, Subs
from redraft.model import ByKeep, BySigma, ByTime, DiffusionLM, DiffusionLMConfig
from redraft.networks import LayoutError, Settings, TransformerConfig, Weights, flat, pretrained, require, setting, some
from redraft.processes import (
    Hybrid,
    Insertion,
    Interpolating,
    Masked,
    Process,
    UniformNoise,
    log_scores,
    proper,
    require_times,
)
from redraft.runs.config import read_json
from redraft.runs.stored import CheckpointError
from redraft.schedules import Cosine, CosineSquared, Exponential, Geometric, Linear, Polynomial, Schedule
from redraft.text import Hub
from redraft.types import Context, Vocab

Layout: TypeAlias = Callable[[Weights, Settings], tuple[TransformerConfig, dict[str, Tensor]]]
Meaning: TypeAlias = Callable[[Settings, TransformerConfig, Hub | None], DiffusionLMConfig]
_UNTOLD = ByTime(0.0)  # networks that are driven by the time, but always see that of clean tokens
_INDEX = "model.safetensors.index.json"
_PICKLED = {".bin", ".pt", ".pth", ".ckpt"}


@dataclass(frozen=True)
class Ratios(Head):
    """x̂ of SEDD's scores for uniform noise, s_y = q_t(y)/q_t(z): q_t = α·x̂ + b solved for x̂, with Σq_t = 1.

    Scores that were learnt freely need not come from any x̂: what is below zero counts as zero. The scores themselves
    are `raw_outputs`, and the bound and the steps that take them as they are stand in processes/score.py.
    """

    @property
    def normalised(self) -> bool:
        return False

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        if not isinstance(process, Interpolating):
            raise ValueError(f"ratios of {type(process).__name__} are not known; Ratios needs Interpolating noise")
        keep, _, word = (part[:, None] for part in process.mix(t))
        x = (log_scores(raw, z).to(keep.dtype).softmax(-1) - word) / keep
        return proper(x).float().log()


class Foreign(NamedTuple):
    """What a foreign directory holds, in our terms."""

    model: DiffusionLMConfig
    tokenizer: Hub | None
    weights: dict[str, Tensor]  # of the DiffusionLM


def read_foreign(path: Path) -> Foreign:
    """The model of a directory that another project wrote."""
    found, weights = settings(path), _weights(path)
    tokenizer = Hub.load(path) if (path / "tokenizer.json").is_file() else None
    if (kind := _kind(found, weights)) is None:
        raise CheckpointError(
            f"{path} is of no known format: its config.json has {_described(found)}; known are {', '.join(_FORMATS)}"
        )
    layout, meaning = _FORMATS[kind]
    try:
        network, state = layout(weights, found)
        model = _unpadded(meaning(flat(found), network, tokenizer))
    except ValueError as error:  # a LayoutError, or settings that contradict each other
        raise CheckpointError(f"{path} was taken for {kind}, but {error}") from error
    if tokenizer is not None and model.vocab.mask is None:
        tokenizer = replace(tokenizer, mask=None)
    return Foreign(model, tokenizer, {f"network.{name}": tensor for name, tensor in state.items()})


def settings(path: Path) -> Settings:
    """The config.json of a directory."""
    return _json(path / "config.json")


def refuse_pickles(path: Path) -> None:
    """Raises for pickled weights, in a file or in a directory without safetensors: opening them can run any code."""
    files = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    pickled = [file.name for file in files if file.suffix in _PICKLED]
    if pickled and not any(file.suffix == ".safetensors" for file in files):
        raise CheckpointError(
            f"{path} holds pickled weights ({some(pickled)}); only safetensors are read. If you trust them, convert "
            "them once: torch.load with weights_only=True, then safetensors.torch.save_file to model.safetensors"
        )


# What the original says


def raw_outputs(model: DiffusionLM, tokens: Tensor, level: Tensor | None = None, label: Tensor | None = None) -> Tensor:
    """(B, L, V) exactly what the original network returns for these ids: logits, or log-scores for SEDD.

    model: a loaded checkpoint. Block networks run as in sampling: a block sees itself and everything before it.
    tokens: (B, L) ids, noisy or clean. FlexMDM infers its padding from them.
    level: (B,) or (B, 1), the noise level in the original's own terms: σ for MDLM, SEDD and UDLM, t for GIDD, and for
        FlexMDM its time, where 1 is data. None for networks that are not told the level.
    label: (B,) class ids, for UDLM.
    """
    told = _level(model, tokens, level)
    ids, context = (tokens, Context()) if model.config.network.gaps is None else _with_end(model, tokens)
    states = model.network(ids, told, replace(context, label=label))
    raw = model.network.logits(states[:, : tokens.shape[1]])
    if model.config.token_head.normalised:
        return raw
    return log_scores(raw, tokens, None if model.config.vocab.mask is None else told)


def raw_gaps(model: DiffusionLM, tokens: Tensor, level: Tensor | None = None) -> Tensor:
    """What FlexMDM's network returns for the gap before each id and the one at the end; arguments as `raw_outputs`.

    (B, L + 1) expected numbers of missing tokens, or (B, L + 1, N + 1) logits of their number.
    """
    ids, context = _with_end(model, tokens)
    return model.network.with_gaps(ids, _level(model, tokens, level), context)[1]


def _level(model: DiffusionLM, tokens: Tensor, level: Tensor | None) -> Tensor:
    """(B, 1) the level the network is told; one that ignores the noise always sees that of clean tokens."""
    if level is None and model.config.network.time and model.config.level != _UNTOLD:
        raise ValueError(f"this network is told the time ({model.config.level}); give its level, a number per row")
    level = torch.zeros(len(tokens), device=tokens.device) if level is None else level
    level = level[:, None] if level.dim() == 1 else level
    require_times(tokens, level)
    return level


def _with_end(model: DiffusionLM, tokens: Tensor) -> tuple[Tensor, Context]:
    """The ids and one more, where the longest row ends; nothing sees beyond the end of its row."""
    if (end := model.config.vocab.pad) is None:
        raise ValueError("gaps need a token for the end of a row; use a vocabulary with pad")
    ids, length = F.pad(tokens, (0, 1), value=end), tokens.ne(end).sum(-1, keepdim=True)
    return ids, Context(pad=torch.arange(ids.shape[1], device=ids.device) > length)


# Which original


def _kind(settings: Settings, weights: Weights) -> str | None:
    """Nested settings come from training runs, flat ones (with a model_type) from the hub."""
    match settings:
        case {"interpolant": {"type": "any-order"}}:
            return "FlexMDM"
        case {"algo": {"name": "bd3lm"}} | {"model_type": "bd3lm"}:
            return "BD3-LM"
        case {"graph": {"type": "absorb" | "uniform"}, "tokens": int()}:
            return "SEDD"
        case {"backbone": "dit", "diffusion": "uniform"} | {"model_type": "udlm"}:
            return "UDLM"
        case {"backbone": "dit", "parameterization": "subs"} | {"model_type": "mdlm"}:
            return "MDLM"
        case {"model_type": "dit", "p_uniform": _}:
            return "GIDD"
        case {"model_type": "llada"} | {"block_type": "llama", "d_model": _}:
            return "LLaDA"
        case {"model_type": "gpt2"} if any(name.startswith("denoise_model.") for name in weights):
            return "DiffuGPT"
        case {"model_type": "llama", "mask_token_id": int()}:
            return "DiffuLLaMA"
        case {"model_type": "Dream"} | {"hidden_act": _, "mask_token_id": int()}:
            return "Dream"
    return None


def _described(settings: Settings) -> str:
    told = [f"{key}={settings[key]!r}" for key in ("model_type", "backbone", "parameterization") if key in settings]
    return ", ".join(told) or f"the keys {some(settings)}"


# What its numbers mean


def _mdlm(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    vocab = _with_mask(_rows(network), settings.get("mask_index"), tokenizer)
    told = BySigma(_schedule(settings, eps=1e-3)) if settings.get("time_conditioning") else _UNTOLD
    return DiffusionLMConfig(Masked(vocab, _schedule(settings)), network, Subs(), told)


def _sedd(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    absorbing = settings["graph"]["type"] == "absorb"
    require(settings, scale_by_sigma=absorbing)
    schedule, told = _schedule(settings), BySigma(_schedule(settings, eps=1e-3))
    if absorbing:
        vocab = _with_mask(_rows(network), settings["tokens"], tokenizer)
        return DiffusionLMConfig(Masked(vocab, schedule), network, Score(), told)
    vocab = _without_mask(_rows(network), tokenizer)
    return DiffusionLMConfig(Interpolating(vocab, schedule, UniformNoise()), network, Ratios(), told)


def _udlm(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    require(settings, time_conditioning=True)
    process = Interpolating(_without_mask(_rows(network), tokenizer), _schedule(settings), UniformNoise())
    return DiffusionLMConfig(process, network, Softmax(), BySigma(_schedule(settings, eps=1e-3)))


def _gidd(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    """A visible token may be noise: nothing is carried over."""
    vocab = _with_mask(setting(settings, "vocab_size"), None, tokenizer)
    process = Interpolating(vocab, Linear(), Hybrid(setting(settings, "p_uniform")))
    return DiffusionLMConfig(process, network, Subs(carry_over=False), ByTime(1.0))


def _flexmdm(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    """Its time runs the other way, and is told as it runs."""
    ours, training = settings["interpolant"], settings.get("training", {})
    require(training, only_embed_insert=False)
    for schedule in ("insert_schedule", "unmask_schedule"):
        require(setting(ours, schedule), type="linear")
    vocab = Vocab(_rows(network), mask=setting(ours, "mask_token"), pad=setting(ours, "pad_token"))
    if tokenizer is not None:
        known = _agreed(tokenizer.vocab, vocab.size, vocab.mask)
        vocab = replace(vocab, bos=known.bos, eos=known.eos)
    return DiffusionLMConfig(Insertion(vocab), network, Subs(), ByKeep())


def _bd3lm(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    require(settings, time_conditioning=False)
    vocab = _with_mask(_rows(network), settings.get("mask_index"), tokenizer)
    return DiffusionLMConfig(Masked(vocab, _schedule(settings)), network, Subs(), _UNTOLD)


def _llada(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    vocab = _with_mask(_rows(network), setting(settings, "mask_token_id"), tokenizer)
    return DiffusionLMConfig(Masked(vocab), network, Subs())


def _adapted(settings: Settings, network: TransformerConfig, tokenizer: Hub | None) -> DiffusionLMConfig:
    """Networks that began as autoregressive ones."""
    vocab = _with_mask(_rows(network), settings.get("mask_token_id"), tokenizer)
    return DiffusionLMConfig(Masked(vocab), network, Shift(Subs()))


_FORMATS: dict[str, tuple[Layout, Meaning]] = {
    "MDLM": (pretrained.dit, _mdlm),
    "SEDD": (pretrained.dit, _sedd),
    "UDLM": (pretrained.dit, _udlm),
    "GIDD": (pretrained.dit, _gidd),
    "FlexMDM": (pretrained.dit, _flexmdm),
    "BD3-LM": (pretrained.dit, _bd3lm),
    "LLaDA": (pretrained.llada, _llada),
    "Dream": (pretrained.qwen2, _adapted),
    "DiffuGPT": (pretrained.gpt2, _adapted),
    "DiffuLLaMA": (pretrained.llama, _adapted),
}


def _unpadded(model: DiffusionLMConfig) -> DiffusionLMConfig:
    """Rows for as many ids as there are go without saying; more of them are padding, and fewer an error."""
    size, rows = model.vocab.size, _rows(model.network)
    if rows < size:
        raise LayoutError(f"its weights have rows for {rows} ids, fewer than the {size} of its vocabulary")
    return model if rows > size else replace(model, network=replace(model.network, ids=None))


def _rows(network: TransformerConfig) -> int:
    """How many ids the weights have rows for, which every layout says."""
    assert network.ids is not None
    return network.ids


def _with_mask(size: int, stated: int | None, tokenizer: Hub | None) -> Vocab:
    """Where the settings do not say it, the mask is the tokenizer's, or the last id: one more than the words have."""
    if tokenizer is None:
        return Vocab(size, mask=size - 1 if stated is None else stated)
    return _agreed(tokenizer.vocab, size, tokenizer.vocab.mask if stated is None else stated)


def _without_mask(size: int, tokenizer: Hub | None) -> Vocab:
    return Vocab(size) if tokenizer is None else _agreed(replace(tokenizer, mask=None).vocab, size, None)


def _agreed(known: Vocab, size: int, mask: int | None) -> Vocab:
    if known.size > size or known.mask != mask:
        raise LayoutError(
            f"its tokenizer.json has {known.size} ids and the mask {known.mask}, where the weights have {size} and "
            f"{mask}; put the tokenizer that belongs to them into the directory"
        )
    return known


def _schedule(settings: Settings, eps: float = 0.0) -> Schedule:
    """The noise by the name it has there; exports do not mention it, since all of them are log-linear."""
    match settings.get("noise", {"type": "loglinear"}):
        case {"type": "loglinear"}:
            return Linear(eps)
        case {"type": "cosine"}:
            return Cosine(eps)
        case {"type": "cosinesqr"}:
            return CosineSquared(eps)
        case {"type": "square"}:
            return Polynomial(2.0)
        case {"type": "square_root"}:
            return Polynomial(0.5)
        case {"type": "linear", "sigma_min": low, "sigma_max": high}:
            return Exponential(low, high)
        case {"type": "geometric", "sigma_min": low, "sigma_max": high}:
            return Geometric(low, high)
        case other:
            raise LayoutError(f"its noise {other} is not one of the schedules of this library")


# Files


def _weights(path: Path) -> dict[str, Tensor]:
    refuse_pickles(path)
    index = path / _INDEX
    names = _shards(index) if index.is_file() else ["model.safetensors"]
    if missing := [name for name in names if Path(name).name != name or not (path / name).is_file()]:
        raise CheckpointError(f"{path} lacks {some(missing)}; the weights must lie beside config.json, as safetensors")
    try:
        return {name: tensor for file in names for name, tensor in load_file(path / file).items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"the weights in {path} are damaged: {error}") from error


def _shards(index: Path) -> list[str]:
    """The files that an index names."""
    match _json(index):
        case {"weight_map": dict(places)} if all(isinstance(name, str) for name in places.values()):
            return sorted(set(places.values()))
    raise CheckpointError(f'{index} has no "weight_map" of file names; restore it')


def _json(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{file} is a {type(found).__name__}; it must be an object")
    return found
