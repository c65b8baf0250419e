"""Tiny recipes for tokens: they learn the embedded stories in minutes on a CPU."""

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
from redraft.decoding.picks.order import AnyOrder
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.self_correction import SelfCorrection
from redraft.decoding.samplers.unmask import Unmask
from redraft.models.config import DiffusionLMConfig
from redraft.models.heads import Score
from redraft.models.networks.attention import BlockCausal, Causal
from redraft.models.networks.config import TransformerConfig
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

STORY_LENGTH = 68  # tokens: the longest story and its end token
_STORY_CHARACTERS = 320  # the same in characters
_ATTRIBUTES_LENGTH = 17  # tokens: the attributes of a story
_PROGRAM_LENGTH = 48  # tokens: the longest program of five statements and its end token
_SUMMARY_LENGTH = 20  # tokens: a summary and its end token


def mdlm_tiny() -> Run:
    """Masked diffusion: a story is uncovered word by word, in any order."""
    return replace(_tiny_run(), sampler=Unmask(64, AnyOrder()))


def mlm_tiny() -> Run:
    """A masked language model, as BERT is one: always 15 % of the tokens are hidden. It cannot write from nothing."""
    return replace(mdlm_tiny(), objective=Objective(TokenCrossEntropy(), StratifiedTimes(0.1499, 0.1501)))


def ar_tiny() -> Run:
    """The autoregressive baseline: the same network with causal attention, exact likelihood."""
    tiny = variations.with_network(_tiny_run(), pattern=Causal())
    return replace(tiny, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1), stop=True))


def bd3_tiny() -> Run:
    """Block diffusion between the two: blocks of eight tokens, each with its own time."""
    block = 8
    tiny = variations.with_network(_tiny_run(), pattern=BlockCausal(block))
    objective = Objective(TokenCrossEntropy(), StratifiedTimes(block=block))
    return replace(tiny, objective=objective, sampler=Blocks(Ancestral(16), stop=True))


def mdlm_tiny_chars() -> Run:
    """Masked diffusion letter by letter: longer rows, fewer of them."""
    base, letters = _tiny_run(), CharTokenizer.collect([*STORY_LANGUAGE.words(), " "], ("eos", "mask"))
    network = TransformerConfig(width=128, layers=4, heads=4, positions=_STORY_CHARACTERS + 1)
    return replace(
        base,
        model=DiffusionLMConfig(Masked(letters.vocab), network),
        tokenizer=letters,
        framing=DocumentRows(_STORY_CHARACTERS, tail=True),
        batch=16,
    )


def udlm_tiny() -> Run:
    """Uniform noise: words become other words, and any of them may be revised until the end."""
    base = _tiny_run()
    return variations.with_noise(base, Interpolating(base.model.vocab), Objective(Bound()))


def gidd_tiny() -> Run:
    """Hybrid noise, at halfway a fifth of all tokens uniform: words are revealed, doubted and corrected.

    Equal steps of this schedule suit the square-root ends of the noise.
    """
    base = _tiny_run()
    process = Interpolating(base.model.vocab, CosineSquared(), HybridNoise(0.2))
    run = variations.with_noise(base, process, Objective(Bound(weight=DynamicWeight())))
    return replace(run, sampler=SelfCorrection(Ancestral(64), steps=32))


def multinomial_tiny() -> Run:
    """Multinomial diffusion: uniform noise as a chain of a thousand steps with its cosine schedule."""
    base = _tiny_run()
    return variations.with_noise(base, Interpolating(base.model.vocab, CosineRatio()), Objective(Bound(steps=1000)))


def d3pm_tiny() -> Run:
    """D3PM with dense matrices, here absorbing ones, and the hybrid loss: the bound plus plain cross-entropy."""
    base = _tiny_run()
    loss = SumOfTerms(Bound(steps=1000), TokenCrossEntropy(), factor=1.0)
    return variations.with_noise(base, Markov(base.model.vocab, AbsorbingRates()), Objective(loss))


def sedd_tiny() -> Run:
    """Score entropy with mask noise: masked diffusion whose x̂ need not sum to one."""
    base = _tiny_run()
    return variations.with_model(base, head=Score())


def sedd_uniform_tiny() -> Run:
    """Score entropy with uniform noise, in UDLM's schedule; the network sees σ.

    Most times of the paper's geometric schedule leave nearly all words or nearly none, and both of its ends cost a
    pass: in minutes it hardly learns. `sedd_uniform_text8` has it.
    """
    return variations.with_model(udlm_tiny(), level=ConditionOnSigma(Linear(1e-3)))


def gstar_tiny() -> Run:
    """The error layer of G-Star on top of `mdlm_tiny`: train that first, or name another base."""
    return variations.with_errors(mdlm_tiny(), base="runs/mdlm_tiny")


def mdlm_code_tiny() -> Run:
    """Masked diffusion of small typed programs, which say their results."""
    words = WordTokenizer(PROGRAM_WORDS)
    return variations.with_network(
        variations.with_text(mdlm_tiny(), words, Programs(), DocumentRows(_PROGRAM_LENGTH, tail=True)),
        positions=_PROGRAM_LENGTH + 1,
        layers=4,
    )


def ar_code_tiny() -> Run:
    """The autoregressive baseline of the same programs."""
    code = variations.with_network(mdlm_code_tiny(), pattern=Causal())
    return replace(code, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1), stop=True))


def mdlm_tagger_tiny() -> Run:
    """A tagger of parts of speech in noisy stories, beside `mdlm_tiny`, for `redraft control`: train that first."""
    return variations.with_tagger(mdlm_tiny(), base="runs/mdlm_tiny")


def ar_tagger_tiny() -> Run:
    """A tagger of the parts of speech to come, beside `ar_tiny` (FUDGE), for `redraft control`: train that first."""
    return variations.with_tagger(ar_tiny(), base="runs/ar_tiny")


def mdlm_attribute_tiny(topic: str = "mood") -> Run:
    """A layer beside `mdlm_tiny` that tells an attribute of noisy stories, for `redraft control`: train that first."""
    return variations.with_attribute(mdlm_tiny(), "runs/mdlm_tiny", StoryClasses(topic))


def flex_tiny() -> Run:
    """Insertion: texts grow while they are written and need no end token; holes may be of any length.

    Nearly all masks have arrived before the first words are seen: gaps need not be counted between words then, and no
    word is written at a place that is yet to move. Counts are relative to what is missing, so that a closed gap stays
    closed. Learned positions beside rotary ones learn faster. Some texts are given but for holes, since words that are
    there before all masks are seen nowhere else.
    """
    base, words = _tiny_run(), WordTokenizer(STORY_LANGUAGE.words(), ("pad", "mask"))
    process = Insertion(words.vocab, Polynomial(20.0), TimeReversed(Polynomial(4.0)))
    places, most = STORY_LENGTH + 1, STORY_LENGTH
    network = TransformerConfig(128, 2, 8, positions=places, time=64, gaps=most, gap_share=True)
    model, holes = DiffusionLMConfig(process, network), Objective(TokenCrossEntropy(), holes=0.3)
    return replace(base, model=model, tokenizer=words, framing=DocumentRows(STORY_LENGTH), objective=holes)


def _tiny_run() -> Run:
    """Words of the stories, mask noise, and a network that learns them in minutes.

    Plain masked cross-entropy learns faster than the bound at this size; evaluation uses the bound. Positions are
    learned: a word's place says much about its role in a story, and with rotary positions alone a wholly masked row
    looks the same everywhere, so the network could not tell where it starts.
    """
    words = WordTokenizer(STORY_LANGUAGE.words())
    places = STORY_LENGTH + 1  # one position more: the start token of a causal network
    network = TransformerConfig(width=128, layers=2, heads=8, rotary=None, positions=places)
    return Run(
        model=DiffusionLMConfig(Masked(words.vocab), network),
        data=StoryCorpus(),
        tokenizer=words,
        framing=DocumentRows(STORY_LENGTH, tail=True),
        objective=Objective(TokenCrossEntropy()),
        sampler=Ancestral(64),
        optimiser=OptimizerConfig(lr=3e-3, muon=0.005, warmup=40, floor=0.0, ema=0.995),
        steps=2000,
        batch=32,
    )
