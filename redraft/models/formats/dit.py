"""The DiT of MDLM, SEDD, UDLM, GIDD, FlexMDM and BD3-LM: its tensors, and what its checkpoints mean.

Most originals keep σ = −log α finite by an ε: α = 1 − (1 − ε) t. Here ε enters only what the network is told; the
process has α = 1 − t. Its reverse steps and weights are the same, and its noise forgets the tokens, as the bound asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.processes.insertion import Insertion
from redraft.core.processes.interpolating import HybridNoise, Interpolating, UniformNoise
from redraft.core.processes.masked import Masked
from redraft.core.processes.sedd import clip_and_normalize, log_scores
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Cosine, CosineSquared, Exponential, Geometric, Linear, Polynomial
from redraft.core.schedules.transforms import ExactEnds, TimeReversed
from redraft.core.vocab import Vocab
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats.checkpoint import (
    ForeignCheckpoint,
    _embedding_rows,
    _Format,
    _InterpretedModel,
    _Interpreter,
    _vocab_with_mask,
    _vocab_without_mask,
)
from redraft.models.formats.layout import (
    Layout,
    _matrix_shape,
    _NameTable,
    flatten_settings,
    require_int_setting,
    require_setting,
    require_supported,
)
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights, LayoutError
from redraft.models.heads import Head, Score, Softmax, Subs
from redraft.models.networks.attention import BlockCausal, Full
from redraft.models.networks.config import TransformerConfig
from redraft.models.time_conditioning import ConditionOnKeep, ConditionOnSigma, ConditionOnTime

_NO_CONDITION = ConditionOnTime(0.0)  # networks that are driven by the time, but always see that of clean tokens


@dataclass(frozen=True)
class UniformScoreHead(Head):
    """x̂ of SEDD's scores for uniform noise, s_y = q_t(y)/q_t(z): q_t = α·x̂ + b solved for x̂, with Σq_t = 1.

    Scores that were learnt freely need not come from any x̂: what is below zero counts as zero. The scores themselves
    are `reference_outputs`, and the bound and the steps that take them as they are stand in processes/score.py.
    """

    @property
    def normalised(self) -> bool:
        return False

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        if not isinstance(process, Interpolating):
            raise ValueError(f"ratios of {type(process).__name__} are not known; Ratios needs Interpolating noise")
        keep, _, word = (part[:, None] for part in process.mix(t))
        x = (log_scores(raw, z).to(keep.dtype).softmax(-1) - word) / keep
        return clip_and_normalize(x).float().log()


def _mdlm(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = flatten_settings(original.settings)
    known = _vocab_with_mask(original, _embedding_rows(network), settings.get("mask_index"), last=True)
    told = ConditionOnSigma(_schedule(settings, eps=1e-3)) if settings.get("time_conditioning") else _NO_CONDITION
    return _InterpretedModel.of(
        DiffusionLMConfig(Masked(known.vocab, _schedule(settings)), network, Subs(), told), known
    )


def _sedd(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = flatten_settings(original.settings)
    absorbing = settings["graph"]["type"] == "absorb"
    require_supported(settings, scale_by_sigma=absorbing)
    schedule, told = _schedule(settings), ConditionOnSigma(_schedule(settings, eps=1e-3))
    if absorbing:
        known = _vocab_with_mask(original, _embedding_rows(network), settings["tokens"])
        return _InterpretedModel.of(DiffusionLMConfig(Masked(known.vocab, schedule), network, Score(), told), known)
    known = _vocab_without_mask(original, _embedding_rows(network))
    process = Interpolating(known.vocab, schedule, UniformNoise())
    return _InterpretedModel.of(DiffusionLMConfig(process, network, UniformScoreHead(), told), known)


def _udlm(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = flatten_settings(original.settings)
    require_supported(settings, time_conditioning=True)
    known = _vocab_without_mask(original, _embedding_rows(network))
    process = Interpolating(known.vocab, _schedule(settings), UniformNoise())
    told = ConditionOnSigma(_schedule(settings, eps=1e-3))
    return _InterpretedModel.of(DiffusionLMConfig(process, network, Softmax(), told), known)


def _gidd(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """A visible token may be noise: nothing is carried over."""
    size = require_int_setting(original.settings, "vocab_size")
    known = _vocab_with_mask(original, size, last=True)
    process = Interpolating(known.vocab, Linear(), HybridNoise(float(require_setting(original.settings, "p_uniform"))))
    return _InterpretedModel.of(
        DiffusionLMConfig(process, network, Subs(carry_over=False), ConditionOnTime(1.0)), known
    )


def _flexmdm(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Its time runs the other way, and is told as it runs, or as the share that is inserted by then."""
    ours, training = original.settings["interpolant"], original.settings.get("training") or {}
    insert, unmask = (_rising(require_setting(ours, name)) for name in ("insert_schedule", "unmask_schedule"))
    told = ConditionOnKeep(insert) if training.get("only_embed_insert") else ConditionOnKeep()
    known = _vocab_with_mask(original, _embedding_rows(network), require_int_setting(ours, "mask_token"))
    vocab = Vocab(_embedding_rows(network), mask=known.vocab.mask, pad=require_int_setting(ours, "pad_token"))
    vocab = replace(vocab, bos=known.vocab.bos, eos=known.vocab.eos)
    return _InterpretedModel.of(DiffusionLMConfig(Insertion(vocab, insert, unmask), network, Subs(), told), known)


def _bd3lm(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = flatten_settings(original.settings)
    require_supported(settings, time_conditioning=False)
    known = _vocab_with_mask(original, _embedding_rows(network), settings.get("mask_index"), last=True)
    return _InterpretedModel.of(
        DiffusionLMConfig(Masked(known.vocab, _schedule(settings)), network, Subs(), _NO_CONDITION), known
    )


def _schedule(settings: ForeignSettings, eps: float = 0.0) -> Schedule:
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
            raise LayoutError(f"its noise {other!r:.80} is not one of the schedules of this library")


def _rising(schedule: ForeignSettings) -> Schedule:
    """FlexMDM's schedules a(τ) by their names there, as functions of t = 1 − τ.

    Its geometric one is e^{−max} at the end and e^{−min} at the beginning; the text is whole and empty there all the
    same, so that a jump remains at both ends.
    """
    match schedule:
        case {"type": "linear"}:
            return Linear()
        case {"type": "sin"}:
            return Cosine()
        case {"type": "cosine"}:
            return TimeReversed(Cosine())
        case {"type": "polynomial", "exp": int() | float() as power}:
            return TimeReversed(Polynomial(float(power)))
        case {"type": "geometric", "min": int() | float() as high, "max": int() | float() as low}:
            return ExactEnds(Geometric(float(low), float(high)))
        case other:
            raise LayoutError(f"its schedule {other!r:.80} is not one of the schedules of this library")


_TABLE: _NameTable = {
    "embedding.weight": ("vocab_embed.embedding",),
    "time.label": ("cond_map.embedding_table",),
    "time": ("sigma_map",),
    "blocks.*.norm1": ("blocks.*.norm1",),
    "blocks.*.norm2": ("blocks.*.norm2",),
    "blocks.*.attention.qkv": ("blocks.*.attn_qkv",),
    "blocks.*.attention.out": ("blocks.*.attn_out",),
    "blocks.*.mlp.up": ("blocks.*.mlp.0",),
    "blocks.*.mlp.down": ("blocks.*.mlp.2",),
    "blocks.*.modulation": ("blocks.*.adaLN_modulation",),
    "norm": ("output_layer.norm_final",),
    "modulation": ("output_layer.adaLN_modulation",),
    "output": ("output_layer.linear",),
}


_EXPECTED_GAPS: _NameTable = {
    "gaps.norm": ("len_pred.norm",),
    "gaps.modulation": ("len_pred.adaLN",),
    "gaps.hidden": ("len_pred.proj1",),
    "gaps.output": ("len_pred.proj2",),
}


_COUNTED_GAPS: _NameTable = {
    "gaps.norm": ("len_pred.norm_final",),
    "gaps.modulation": ("len_pred.adaLN_modulation",),
    "gaps.output": ("len_pred.linear",),
}


def _sizes(state: ForeignWeights, config: ForeignSettings) -> TransformerConfig:
    """BD3-LM's settings may name blocks, UDLM's weights know labels, FlexMDM's gaps.

    Sizes are read off the tensors: the families name them differently, and some give a wrong default for the width of
    the time embedding. What the network is fed as time (σ, 0, t) is the model's `TimeConditioning`.
    """
    labels = state.get("cond_map.embedding_table.weight")  # one row per class, and one for none
    config = flatten_settings(config)
    require_supported(config, causal=False, causal_attention=False, adaln=True, tie_word_embeddings=False)
    vocab, width = _matrix_shape(state, "vocab_embed.embedding")
    interpolant = config.get("interpolant")
    return TransformerConfig(
        ids=vocab,
        width=width,
        layers=require_int_setting(config, "n_blocks", "num_hidden_layers"),
        heads=require_int_setting(config, "n_heads", "num_attention_heads"),
        pattern=BlockCausal(require_int_setting(config, "block_size")) if config.get("cross_attn") else Full(),
        norm="layer",
        gated=False,
        mlp_bias=True,
        time=_matrix_shape(state, "sigma_map.mlp.0.weight")[0],
        classes=None if labels is None else labels.shape[0] - 1,
        head_bias=True,
        gaps=None if interpolant is None else require_int_setting(interpolant, "max_length"),
        gap_counts="len_pred.linear.weight" in state,
    )


def _table(config: TransformerConfig) -> _NameTable:
    return {**_TABLE, **(_COUNTED_GAPS if config.gap_counts else _EXPECTED_GAPS)}


dit = Layout(_table, _sizes, {"backbone.": "", "model._orig_mod.": "", "model.": ""})  # _orig_mod: compiled
_MEANINGS: dict[str, _Interpreter] = {
    "MDLM": _mdlm,
    "SEDD": _sedd,
    "UDLM": _udlm,
    "GIDD": _gidd,
    "FlexMDM": _flexmdm,
    "BD3-LM": _bd3lm,
}
_FORMATS = {name: _Format(dit, meaning) for name, meaning in _MEANINGS.items()}
