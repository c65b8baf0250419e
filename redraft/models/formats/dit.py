"""What the checkpoints of MDLM, SEDD, UDLM, GIDD, FlexMDM and BD3-LM mean: process, head, and what the network is told.

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
from redraft.models.formats.checkpoint import Meaning, Original, Understood, rows, with_mask, without_mask
from redraft.models.formats.layout import LayoutError, flat, require, setting, whole_number
from redraft.models.formats.storage.tensors import Settings
from redraft.models.heads import Head, Score, Softmax, Subs
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


DIT: dict[str, Meaning] = {
    "MDLM": _mdlm,
    "SEDD": _sedd,
    "UDLM": _udlm,
    "GIDD": _gidd,
    "FlexMDM": _flexmdm,
    "BD3-LM": _bd3lm,
}


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
