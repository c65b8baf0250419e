"""The DiT of MDLM, SEDD, UDLM, GIDD, FlexMDM and BD3-LM: tensor names, and how to interpret checkpoints.

Most originals keep σ = −log α finite with an ε: α = 1 − (1 − ε) t. Here ε only enters the time conditioning, and
the process has α = 1 − t. Reverse steps and loss weights are the same, and at t = 1 no token is left, as the likelihood
bound requires.
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
    _embedding_rows,
    _ForeignCheckpoint,
    _Format,
    _InterpretedModel,
    _Interpreter,
    _vocab_with_mask,
    _vocab_without_mask,
)
from redraft.models.formats.layout import (
    _flatten_settings,
    _Layout,
    _matrix_shape,
    _NameTable,
    _require_int_setting,
    _require_setting,
    _require_supported,
)
from redraft.models.formats.storage.tensors import ForeignSettings, ForeignWeights, LayoutError
from redraft.models.heads import Head, Score, Softmax, Subs
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import BlockCausal, Full
from redraft.models.time_conditioning import ConditionOnKeep, ConditionOnSigma, ConditionOnTime

_TIME_IGNORED = ConditionOnTime(
    0.0
)  # for networks with a time embedding that is always fed 0, the time of clean tokens


@dataclass(frozen=True)
class UniformScoreHead(Head):
    """Converts SEDD's scores for uniform noise, s_y = q_t(y)/q_t(z), to x̂: solves q_t = α·x̂ + b with Σq_t = 1.

    Learned scores need not belong to any x̂; negative entries are set to zero. `reference_outputs` returns the scores
    themselves, and `core/processes/sedd.py` has the formulas that use them directly.
    """

    @property
    def normalized(self) -> bool:
        return False

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        noise = process.narrowed(Interpolating, "UniformScoreHead", "use Softmax()")
        keep, _, uniform = (weight[:, None] for weight in noise.mix(t))
        x = (log_scores(raw, z).to(keep.dtype).softmax(-1) - uniform) / keep
        return clip_and_normalize(x).float().log()


def _interpret_mdlm(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = _flatten_settings(original.settings)
    inferred = _vocab_with_mask(original, _embedding_rows(network), settings.get("mask_index"), last=True)
    conditioning = (
        ConditionOnSigma(_read_schedule(settings, eps=1e-3)) if settings.get("time_conditioning") else _TIME_IGNORED
    )
    return _InterpretedModel.of(
        DiffusionLMConfig(Masked(inferred.vocab, _read_schedule(settings)), network, Subs(), conditioning), inferred
    )


def _interpret_sedd(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = _flatten_settings(original.settings)
    absorbing = settings["graph"]["type"] == "absorb"
    _require_supported(settings, scale_by_sigma=absorbing)
    schedule, conditioning = _read_schedule(settings), ConditionOnSigma(_read_schedule(settings, eps=1e-3))
    if absorbing:
        inferred = _vocab_with_mask(original, _embedding_rows(network), settings["tokens"])
        return _InterpretedModel.of(
            DiffusionLMConfig(Masked(inferred.vocab, schedule), network, Score(), conditioning), inferred
        )
    inferred = _vocab_without_mask(original, _embedding_rows(network))
    process = Interpolating(inferred.vocab, schedule, UniformNoise())
    return _InterpretedModel.of(DiffusionLMConfig(process, network, UniformScoreHead(), conditioning), inferred)


def _interpret_udlm(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = _flatten_settings(original.settings)
    _require_supported(settings, time_conditioning=True)
    inferred = _vocab_without_mask(original, _embedding_rows(network))
    process = Interpolating(inferred.vocab, _read_schedule(settings), UniformNoise())
    conditioning = ConditionOnSigma(_read_schedule(settings, eps=1e-3))
    return _InterpretedModel.of(DiffusionLMConfig(process, network, Softmax(), conditioning), inferred)


def _interpret_gidd(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Interpret GIDD, whose visible tokens may be noise and are therefore predicted, not copied."""
    size = _require_int_setting(original.settings, "vocab_size")
    inferred = _vocab_with_mask(original, size, last=True)
    process = Interpolating(
        inferred.vocab, Linear(), HybridNoise(float(_require_setting(original.settings, "p_uniform")))
    )
    return _InterpretedModel.of(
        DiffusionLMConfig(process, network, Subs(carry_over=False), ConditionOnTime(1.0)), inferred
    )


def _interpret_flexmdm(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Interpret FlexMDM. Its time runs from noise (0) to data (1).

    The network is conditioned on that time, or on the fraction of tokens inserted by then.
    """
    interpolant, training = original.settings["interpolant"], original.settings.get("training") or {}
    insert, unmask = (
        _read_flexmdm_schedule(_require_setting(interpolant, name)) for name in ("insert_schedule", "unmask_schedule")
    )
    conditioning = ConditionOnKeep(insert) if training.get("only_embed_insert") else ConditionOnKeep()
    inferred = _vocab_with_mask(original, _embedding_rows(network), _require_int_setting(interpolant, "mask_token"))
    vocab = Vocab(
        _embedding_rows(network), mask=inferred.vocab.mask, pad=_require_int_setting(interpolant, "pad_token")
    )
    vocab = replace(vocab, bos=inferred.vocab.bos, eos=inferred.vocab.eos)
    return _InterpretedModel.of(
        DiffusionLMConfig(Insertion(vocab, insert, unmask), network, Subs(), conditioning), inferred
    )


def _interpret_bd3lm(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    settings = _flatten_settings(original.settings)
    _require_supported(settings, time_conditioning=False)
    inferred = _vocab_with_mask(original, _embedding_rows(network), settings.get("mask_index"), last=True)
    return _InterpretedModel.of(
        DiffusionLMConfig(Masked(inferred.vocab, _read_schedule(settings)), network, Subs(), _TIME_IGNORED), inferred
    )


def _read_schedule(settings: ForeignSettings, eps: float = 0.0) -> Schedule:
    """Read the noise schedule; exported checkpoints do not name it, because all of them are log-linear."""
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
            raise LayoutError(f"its noise {other!r:.80} is not one of the schedules that Redraft knows")


def _read_flexmdm_schedule(schedule: ForeignSettings) -> Schedule:
    """Read one of FlexMDM's schedules a(τ) as a function of t = 1 − τ.

    Its geometric schedule is e^{−min} at the start (τ = 0) and e^{−max} at the end. The text is still empty at the
    start and complete at the end, so the schedule jumps at both ends.
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
            raise LayoutError(f"its schedule {other!r:.80} is not one of the schedules that Redraft knows")


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


_CATEGORICAL_GAPS: _NameTable = {
    "gaps.norm": ("len_pred.norm_final",),
    "gaps.modulation": ("len_pred.adaLN_modulation",),
    "gaps.output": ("len_pred.linear",),
}


def _read_config(state: ForeignWeights, config: ForeignSettings) -> TransformerConfig:
    """Read the config, with attention blocks for BD3-LM, classes for UDLM, and a gap head for FlexMDM.

    Sizes are taken from the tensors: projects name the settings differently, and some give a wrong width of the time
    embedding. What the network gets as time (σ, 0 or t) is set by the model's `TimeConditioning`.
    """
    labels = state.get("cond_map.embedding_table.weight")  # one row per class, and one for "no class"
    config = _flatten_settings(config)
    _require_supported(config, causal=False, causal_attention=False, adaln=True, tie_word_embeddings=False)
    vocab, width = _matrix_shape(state, "vocab_embed.embedding")
    interpolant = config.get("interpolant")
    return TransformerConfig(
        padded_vocab=vocab,
        width=width,
        layers=_require_int_setting(config, "n_blocks", "num_hidden_layers"),
        heads=_require_int_setting(config, "n_heads", "num_attention_heads"),
        pattern=BlockCausal(_require_int_setting(config, "block_size")) if config.get("cross_attn") else Full(),
        norm="layer",
        gated=False,
        mlp_bias=True,
        time=_matrix_shape(state, "sigma_map.mlp.0.weight")[0],
        classes=None if labels is None else labels.shape[0] - 1,
        head_bias=True,
        gaps=None if interpolant is None else _require_int_setting(interpolant, "max_length"),
        gap_counts="len_pred.linear.weight" in state,
    )


def _name_table(config: TransformerConfig) -> _NameTable:
    return {**_TABLE, **(_CATEGORICAL_GAPS if config.gap_counts else _EXPECTED_GAPS)}


_dit_layout = _Layout(
    _name_table, _read_config, {"backbone.": "", "model._orig_mod.": "", "model.": ""}
)  # torch.compile adds _orig_mod
_INTERPRETERS: dict[str, _Interpreter] = {
    "MDLM": _interpret_mdlm,
    "SEDD": _interpret_sedd,
    "UDLM": _interpret_udlm,
    "GIDD": _interpret_gidd,
    "FlexMDM": _interpret_flexmdm,
    "BD3-LM": _interpret_bd3lm,
}
_FORMATS = {name: _Format(_dit_layout, interpret) for name, interpret in _INTERPRETERS.items()}
