"""Tiny presets with noise on tokens; they learn the built-in stories in minutes on a CPU."""

from __future__ import annotations

from dataclasses import replace

from redraft.core.processes.insertion import Insertion
from redraft.core.processes.interpolating import HybridNoise, Interpolating
from redraft.core.processes.markov import AbsorbingRates, Markov
from redraft.core.processes.masked import Masked
from redraft.core.schedules.tokens import CosineRatio, CosineSquared, Linear, Polynomial
from redraft.core.schedules.transforms import TimeReversed
from redraft.core.text.tokenizers import CharTokenizer, WordTokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.blocks.strides import SlidingWindow
from redraft.decoding.picks.order import AnyOrder
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.self_correction import SelfCorrection
from redraft.decoding.samplers.unmask import Unmask
from redraft.models.config import DiffusionLMConfig
from redraft.models.heads import Score
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import BlockCausal, Causal
from redraft.models.time_conditioning import ConditionOnSigma
from redraft.training.data.corpora.programs import PROGRAM_WORDS, Programs
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.data.corpora.story_tasks import StoryClasses, StoryCorpus
from redraft.training.data.framing import DocumentRows
from redraft.training.objectives.losses import Bound, DynamicWeight, SumOfTerms, TokenCrossEntropy
from redraft.training.objectives.objective import Objective
from redraft.training.objectives.time_samplers import StratifiedTimes
from redraft.training.runs import variations
from redraft.training.runs.run import OptimizerConfig, Run

STORY_LENGTH = 68  # tokens of the longest story, end token included
_STORY_CHARACTERS = 320  # characters of the longest story, end token included
_ATTRIBUTES_LENGTH = 17  # tokens of the attributes of a story
_PROGRAM_LENGTH = 48  # tokens of the longest program of five statements, end token included
_SUMMARY_LENGTH = 20  # tokens of a summary, end token included


def mdlm_tiny() -> Run:
    """Masked diffusion (MDLM): a story is unmasked word by word, in any order."""
    return replace(_tiny_run(), sampler=Unmask(64, AnyOrder()))


def mdlm_long_tiny() -> Run:
    """Masked diffusion of story after story: a text of any length is written in windows of 136 words."""
    run = variations.with_packed_rows(replace(mdlm_tiny(), batch=16), 2 * STORY_LENGTH)
    return replace(run, sampler=SlidingWindow(run.sampler, 2 * STORY_LENGTH, STORY_LENGTH))


def mlm_tiny() -> Run:
    """A masked language model like BERT: always 15 % of the tokens are masked. It cannot write from scratch."""
    return replace(mdlm_tiny(), objective=Objective(TokenCrossEntropy(), StratifiedTimes(0.1499, 0.1501)))


def ar_tiny() -> Run:
    """Autoregressive baseline: the network of `mdlm_tiny` with causal attention; its likelihood is exact."""
    tiny = variations.with_network(_tiny_run(), pattern=Causal())
    return replace(tiny, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1), stop=True))


def bd3_tiny() -> Run:
    """Block diffusion (BD3-LM): blocks of eight tokens, each with its own time."""
    block = 8
    tiny = variations.with_network(_tiny_run(), pattern=BlockCausal(block))
    objective = Objective(TokenCrossEntropy(), StratifiedTimes(block=block))
    return replace(tiny, objective=objective, sampler=Blocks(Ancestral(16), stop=True))


def mdlm_tiny_chars() -> Run:
    """Masked diffusion on characters: longer rows, fewer per batch."""
    base, characters = _tiny_run(), CharTokenizer.collect([*STORY_LANGUAGE.words(), " "], ("eos", "mask"))
    network = TransformerConfig(width=128, layers=4, heads=4, positions=_STORY_CHARACTERS + 1)
    return replace(
        base,
        model=DiffusionLMConfig(Masked(characters.vocab), network),
        tokenizer=characters,
        framing=DocumentRows(_STORY_CHARACTERS, fill_with_eos=True),
        batch=16,
    )


def udlm_tiny() -> Run:
    """Uniform noise (UDLM): words become other words, and any word can be revised until the last step."""
    base = _tiny_run()
    return variations.with_noise(base, Interpolating(base.model.vocab), Objective(Bound()))


def gidd_tiny() -> Run:
    """Hybrid noise (GIDD), uniform on a fifth of all tokens at t = ½: words are unmasked, and corrected later.

    The uniform part of the noise grows like a square root at both ends, which equal steps of this schedule suit.
    """
    base = _tiny_run()
    process = Interpolating(base.model.vocab, CosineSquared(), HybridNoise(0.2))
    run = variations.with_noise(base, process, Objective(Bound(weight=DynamicWeight())))
    return replace(run, sampler=SelfCorrection(Ancestral(64), steps=32))


def multinomial_tiny() -> Run:
    """Multinomial diffusion: uniform noise as a chain of 1000 steps, with the paper's cosine schedule."""
    base = _tiny_run()
    return variations.with_noise(base, Interpolating(base.model.vocab, CosineRatio()), Objective(Bound(steps=1000)))


def d3pm_tiny() -> Run:
    """D3PM with dense transition matrices, here absorbing, and the hybrid loss: the bound plus cross-entropy."""
    base = _tiny_run()
    loss = SumOfTerms(Bound(steps=1000), TokenCrossEntropy(), factor=1.0)
    return variations.with_noise(base, Markov(base.model.vocab, AbsorbingRates()), Objective(loss))


def sedd_tiny() -> Run:
    """Score entropy (SEDD) with mask noise: masked diffusion whose x̂ need not sum to one."""
    base = _tiny_run()
    return variations.with_model(base, head=Score())


def sedd_uniform_tiny() -> Run:
    """Score entropy (SEDD) with uniform noise and UDLM's schedule; the network is conditioned on σ.

    With the paper's geometric schedule, most times leave nearly all words unchanged or nearly none, and the bound needs
    an extra forward pass at both ends, so little is learned in minutes. `sedd_uniform_text8` uses that schedule.
    """
    return variations.with_model(udlm_tiny(), time_conditioning=ConditionOnSigma(Linear(1e-3)))


def gstar_tiny() -> Run:
    """The error head of G-Star on top of `mdlm_tiny`; train that first, or give another base."""
    return variations.with_errors(mdlm_tiny(), base="runs/mdlm_tiny")


def mdlm_code_tiny() -> Run:
    """Masked diffusion of small typed programs that state their results."""
    words = WordTokenizer(PROGRAM_WORDS)
    return variations.with_network(
        variations.with_text(mdlm_tiny(), words, Programs(), DocumentRows(_PROGRAM_LENGTH, fill_with_eos=True)),
        positions=_PROGRAM_LENGTH + 1,
        layers=4,
    )


def ar_code_tiny() -> Run:
    """Autoregressive baseline of `mdlm_code_tiny`."""
    code = variations.with_network(mdlm_code_tiny(), pattern=Causal())
    return replace(code, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1), stop=True))


def mdlm_tagger_tiny() -> Run:
    """A part-of-speech tagger for noisy stories, for `redraft control`; train its base `mdlm_tiny` first."""
    return variations.with_tagger(mdlm_tiny(), base="runs/mdlm_tiny")


def ar_tagger_tiny() -> Run:
    """A tagger that predicts future parts of speech (FUDGE), for `redraft control`; train its base `ar_tiny` first."""
    return variations.with_tagger(ar_tiny(), base="runs/ar_tiny")


def mdlm_attribute_tiny(topic: str = "mood") -> Run:
    """A classifier of an attribute of noisy stories, for `redraft control`; train its base `mdlm_tiny` first."""
    return variations.with_attribute(mdlm_tiny(), "runs/mdlm_tiny", StoryClasses(topic))


def flex_tiny() -> Run:
    """Insertion (FlexMDM): texts grow during sampling and need no end token; holes may have any length.

    The schedules insert nearly all masks before the first words are revealed. Then no gaps between words must be
    predicted, and no word is written at a position that still changes. Gap counts are predicted as a fraction of what
    is missing, so a closed gap stays closed. Learned positions in addition to rotary ones speed up learning. Some rows
    are given except for holes: otherwise training would never show words that precede the last inserted mask.
    """
    base, words = _tiny_run(), WordTokenizer(STORY_LANGUAGE.words(), ("pad", "mask"))
    process = Insertion(words.vocab, Polynomial(20.0), TimeReversed(Polynomial(4.0)))
    network = TransformerConfig(128, 2, 8, positions=STORY_LENGTH + 1, time=64, gaps=STORY_LENGTH, gap_fraction=True)
    model, objective = DiffusionLMConfig(process, network), Objective(TokenCrossEntropy(), holes=0.3)
    return replace(base, model=model, tokenizer=words, framing=DocumentRows(STORY_LENGTH), objective=objective)


def _tiny_run() -> Run:
    """Return the run that tiny presets vary: built-in stories as words, mask noise, two layers of width 128.

    Masked cross-entropy learns faster than the bound at this size; evaluation uses the bound. Positions are learned:
    a word's position says much about its role in a story, and with rotary positions alone a fully masked row looks the
    same everywhere, so the network could not tell where it starts.
    """
    words = WordTokenizer(STORY_LANGUAGE.words())
    positions = STORY_LENGTH + 1  # the start token of a causal network takes one
    network = TransformerConfig(width=128, layers=2, heads=8, rotary=None, positions=positions)
    return Run(
        model=DiffusionLMConfig(Masked(words.vocab), network),
        data=StoryCorpus(),
        tokenizer=words,
        framing=DocumentRows(STORY_LENGTH, fill_with_eos=True),
        objective=Objective(TokenCrossEntropy()),
        sampler=Ancestral(64),
        optimizer=OptimizerConfig(lr=3e-3, muon=0.005, warmup=40, floor=0.0, ema=0.995),
        steps=2000,
        batch=32,
    )
