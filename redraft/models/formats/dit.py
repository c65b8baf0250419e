"""The DiT of MDLM, SEDD, UDLM, GIDD, FlexMDM and BD3-LM: its tensors, and what its checkpoints mean.

Most originals keep σ = −log α finite by an ε: α = 1 − (1 − ε) t. Here ε enters only what the network is told; the
process has α = 1 − t. Its reverse steps and weights are the same, and its noise forgets the tokens, as the bound asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.processes.insertion import Insertion
from redraft.core.processes.interpolating import Hybrid, Interpolating, UniformNoise
from redraft.core.processes.masked import Masked
from redraft.core.processes.sedd import log_scores, proper
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Cosine, CosineSquared, Exponential, Geometric, Linear, Polynomial
from redraft.core.schedules.transforms import Jumping, Mirrored
from redraft.core.vocab import Vocab
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats.checkpoint import Format, Meaning, Original, Understood, rows, with_mask, without_mask
from redraft.models.formats.layout import Layout, Table, flat, require, setting, size, whole_number
from redraft.models.formats.storage.tensors import LayoutError, Settings, Weights
from redraft.models.heads import Head, Score, Softmax, Subs
from redraft.models.networks.attention import BlockCausal, Full
from redraft.models.networks.config import TransformerConfig
from redraft.models.time_conditioning import ByKeep, BySigma, ByTime

UNTOLD = ByTime(0.0)  # networks that are driven by the time, but always see that of clean tokens


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


def _mdlm(original: Original, network: TransformerConfig) -> Understood:
    settings = flat(original.settings)
    known = with_mask(original, rows(network), settings.get("mask_index"), last=True)
    told = BySigma(_schedule(settings, eps=1e-3)) if settings.get("time_conditioning") else UNTOLD
    return Understood.of(DiffusionLMConfig(Masked(known.vocab, _schedule(settings)), network, Subs(), told), known)


def _sedd(original: Original, network: TransformerConfig) -> Understood:
    settings = flat(original.settings)
    absorbing = settings["graph"]["type"] == "absorb"
    require(settings, scale_by_sigma=absorbing)
    schedule, told = _schedule(settings), BySigma(_schedule(settings, eps=1e-3))
    if absorbing:
        known = with_mask(original, rows(network), settings["tokens"])
        return Understood.of(DiffusionLMConfig(Masked(known.vocab, schedule), network, Score(), told), known)
    known = without_mask(original, rows(network))
    process = Interpolating(known.vocab, schedule, UniformNoise())
    return Understood.of(DiffusionLMConfig(process, network, Ratios(), told), known)


def _udlm(original: Original, network: TransformerConfig) -> Understood:
    settings = flat(original.settings)
    require(settings, time_conditioning=True)
    known = without_mask(original, rows(network))
    process = Interpolating(known.vocab, _schedule(settings), UniformNoise())
    told = BySigma(_schedule(settings, eps=1e-3))
    return Understood.of(DiffusionLMConfig(process, network, Softmax(), told), known)


def _gidd(original: Original, network: TransformerConfig) -> Understood:
    """A visible token may be noise: nothing is carried over."""
    size = whole_number(original.settings, "vocab_size")
    known = with_mask(original, size, last=True)
    process = Interpolating(known.vocab, Linear(), Hybrid(float(setting(original.settings, "p_uniform"))))
    return Understood.of(DiffusionLMConfig(process, network, Subs(carry_over=False), ByTime(1.0)), known)


def _flexmdm(original: Original, network: TransformerConfig) -> Understood:
    """Its time runs the other way, and is told as it runs, or as the share that is inserted by then."""
    ours, training = original.settings["interpolant"], original.settings.get("training") or {}
    insert, unmask = (_rising(setting(ours, name)) for name in ("insert_schedule", "unmask_schedule"))
    told = ByKeep(insert) if training.get("only_embed_insert") else ByKeep()
    known = with_mask(original, rows(network), whole_number(ours, "mask_token"))
    vocab = Vocab(rows(network), mask=known.vocab.mask, pad=whole_number(ours, "pad_token"))
    vocab = replace(vocab, bos=known.vocab.bos, eos=known.vocab.eos)
    return Understood.of(DiffusionLMConfig(Insertion(vocab, insert, unmask), network, Subs(), told), known)


def _bd3lm(original: Original, network: TransformerConfig) -> Understood:
    settings = flat(original.settings)
    require(settings, time_conditioning=False)
    known = with_mask(original, rows(network), settings.get("mask_index"), last=True)
    return Understood.of(DiffusionLMConfig(Masked(known.vocab, _schedule(settings)), network, Subs(), UNTOLD), known)


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
            raise LayoutError(f"its noise {other!r:.80} is not one of the schedules of this library")


def _rising(schedule: Settings) -> Schedule:
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
            return Mirrored(Cosine())
        case {"type": "polynomial", "exp": int() | float() as power}:
            return Mirrored(Polynomial(float(power)))
        case {"type": "geometric", "min": int() | float() as high, "max": int() | float() as low}:
            return Jumping(Geometric(float(low), float(high)))
        case other:
            raise LayoutError(f"its schedule {other!r:.80} is not one of the schedules of this library")


_TABLE: Table = {
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


_EXPECTED_GAPS: Table = {
    "gaps.norm": ("len_pred.norm",),
    "gaps.modulation": ("len_pred.adaLN",),
    "gaps.hidden": ("len_pred.proj1",),
    "gaps.output": ("len_pred.proj2",),
}


_COUNTED_GAPS: Table = {
    "gaps.norm": ("len_pred.norm_final",),
    "gaps.modulation": ("len_pred.adaLN_modulation",),
    "gaps.output": ("len_pred.linear",),
}


def _sizes(state: Weights, config: Settings) -> TransformerConfig:
    """BD3-LM's settings may name blocks, UDLM's weights know labels, FlexMDM's gaps.

    Sizes are read off the tensors: the families name them differently, and some give a wrong default for the width of
    the time embedding. What the network is fed as time (σ, 0, t) is the model's `Level`.
    """
    labels = state.get("cond_map.embedding_table.weight")  # one row per class, and one for none
    config = flat(config)
    require(config, causal=False, causal_attention=False, adaln=True, tie_word_embeddings=False)
    vocab, width = size(state, "vocab_embed.embedding")
    interpolant = config.get("interpolant")
    return TransformerConfig(
        ids=vocab,
        width=width,
        layers=whole_number(config, "n_blocks", "num_hidden_layers"),
        heads=whole_number(config, "n_heads", "num_attention_heads"),
        pattern=BlockCausal(whole_number(config, "block_size")) if config.get("cross_attn") else Full(),
        norm="layer",
        gated=False,
        mlp_bias=True,
        time=size(state, "sigma_map.mlp.0.weight")[0],
        classes=None if labels is None else labels.shape[0] - 1,
        head_bias=True,
        gaps=None if interpolant is None else whole_number(interpolant, "max_length"),
        gap_counts="len_pred.linear.weight" in state,
    )


def _table(config: TransformerConfig) -> Table:
    return {**_TABLE, **(_COUNTED_GAPS if config.gap_counts else _EXPECTED_GAPS)}


dit = Layout(_table, _sizes, {"backbone.": "", "model._orig_mod.": "", "model.": ""})  # _orig_mod: compiled
_MEANINGS: dict[str, Meaning] = {
    "MDLM": _mdlm,
    "SEDD": _sedd,
    "UDLM": _udlm,
    "GIDD": _gidd,
    "FlexMDM": _flexmdm,
    "BD3-LM": _bd3lm,
}
FORMATS = {name: Format(dit, meaning) for name, meaning in _MEANINGS.items()}
