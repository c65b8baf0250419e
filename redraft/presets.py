"""Presets: functions that return a Run, one per recipe, in one dict.

The tiny ones learn the embedded stories in minutes on a CPU. The published ones carry their papers' hyperparameters;
they read their tokenizer from a file of the user's, say `tokenizer.json` of GPT-2, and their data from files or a hub.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redraft.data import Corpus, Documents, Endless, HubDataset, Packed, StoriesData, Text8
from redraft.model import ByTime, DiffusionLMConfig
from redraft.networks.attention import BlockCausal, Causal, Full, Pattern
from redraft.networks.transformer import TransformerConfig
from redraft.objectives import Bound, Objective, Recover, Stratified
from redraft.processes.masked import Masked
from redraft.run import Optimiser, Run
from redraft.samplers.ancestral import Ancestral, FirstHitting
from redraft.samplers.blocks import Blocks
from redraft.samplers.unmask import Confidence, Unmask
from redraft.stories import STORIES
from redraft.text import TEXT8, Characters, Hub, Tokenizer, Words

STORY_LENGTH = 72  # tokens: the longest story and its end sign


# --- tiny: the embedded stories ---


def mdlm_tiny() -> Run:
    """Masked diffusion: plain masked cross-entropy learns faster than the bound at this size; the bound evaluates."""
    words = Words(STORIES.words())
    return Run(
        model=DiffusionLMConfig(Masked(words.vocab), TransformerConfig(words.vocab.size, width=128, layers=4, heads=4)),
        data=StoriesData(),
        tokenizer=words,
        framing=Documents(STORY_LENGTH, tail=True),
        objective=Objective(Recover()),
        sampler=Ancestral(64),
        optimiser=Optimiser(lr=3e-3, muon=0.02, warmup=50, floor=0.0, ema=0.995),
        steps=680,
        batch=64,
    )


def ar_tiny() -> Run:
    """The autoregressive baseline: the same network with causal attention, exact likelihood."""
    base = mdlm_tiny()
    tiny = _with_pattern(base, Causal(base.model.vocab.masked))
    return replace(tiny, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1), stop=base.model.vocab.eos))


def bd3_tiny() -> Run:
    """Block diffusion between the two: blocks of eight tokens, each with its own time."""
    base, block = mdlm_tiny(), 8
    tiny = _with_pattern(base, BlockCausal(block))
    return replace(
        tiny,
        objective=Objective(Recover(), Stratified(block=block)),
        sampler=Blocks(Ancestral(16), stop=base.model.vocab.eos),
    )


def _with_pattern(run: Run, pattern: Pattern) -> Run:
    return replace(run, model=replace(run.model, network=replace(run.model.network, pattern=pattern)))


# --- published recipes ---


def mdlm_text8(path: str = "text8") -> Run:
    """Masked diffusion on text8 (Sahoo et al. 2024, ≤ 1.40 bits per character): 12 × 768, 256 characters, 1M steps."""
    return _small(Characters(TEXT8), Text8(path), Packed(256))


def mdlm_lm1b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Masked diffusion on LM1B with BERT's tokenizer, one padded sentence per row (perplexity ≤ 27.04 at 1M steps)."""
    return _small(_tokenizer(tokenizer), HubDataset("lm1b", field="text"), Documents(128))


def mdlm_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Masked diffusion on OpenWebText with GPT-2's tokenizer, packed into rows of 1024 (perplexity ≤ 23.21)."""
    return _small(_tokenizer(tokenizer), HubDataset("Skylion007/openwebtext", field="text"), Packed(1024))


def ar_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """The autoregressive baseline of the same paper: no time, causal attention (perplexity 17.54)."""
    base = mdlm_owt(tokenizer)
    network = replace(base.model.network, pattern=Causal(base.model.vocab.masked), time=None)
    run = replace(base, model=replace(base.model, network=network))
    return replace(run, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1)))


def bd3_owt(tokenizer: str | Tokenizer = "tokenizer.json", block: int = 16) -> Run:
    """Block diffusion (Arriola et al. 2025, perplexity ≤ 22.27 at blocks of 16), times clipped to [0.3, 0.8]."""
    run = _with_pattern(mdlm_owt(tokenizer), BlockCausal(block))
    times = Stratified(low=0.3, high=0.8, block=block)
    return replace(run, objective=Objective(Bound(), times), sampler=Blocks(FirstHitting()))


def llada_8b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Pre-training in the manner of LLaDA (Nie et al. 2025): 8.02B parameters, rows of 4096, 1280 rows per step.

    2.3T tokens are 439,000 steps. Sharded, with gradient checkpointing: for many GPUs.
    """
    text = _tokenizer(tokenizer)
    network = TransformerConfig(
        max(126_464, text.vocab.size), width=4096, layers=32, heads=32, hidden=12_288, rotary=500_000.0
    )
    return Run(
        model=DiffusionLMConfig(Masked(text.vocab), network),
        data=HubDataset("HuggingFaceFW/fineweb", field="text", streaming=True),
        tokenizer=text,
        framing=Packed(4096),
        objective=Objective(Recover(power=1.0), Stratified(low=1e-3)),
        sampler=Blocks(Unmask(steps=32, pick=Confidence()), decode_block=32),
        optimiser=Optimiser(lr=4e-4, betas=(0.9, 0.95), weight_decay=0.1, warmup=2000, floor=0.1),
        steps=439_000,
        batch=1280,
        shard=True,
        recompute=True,
        save_every=1000,
        eval_every=5000,
    )


def _small(tokenizer: Tokenizer, data: Corpus | Endless, framing: Documents | Packed) -> Run:
    """The small DiT of MDLM, SEDD and BD3-LM, and their training: 1M steps of 512 rows."""
    network = TransformerConfig(
        tokenizer.vocab.size,
        width=768,
        layers=12,
        heads=12,
        pattern=Full(),
        norm="layer",
        gated=False,
        mlp_bias=True,
        time=128,
        head_bias=True,
        dropout=0.1,
    )
    return Run(
        # time is embedded, but as a constant: the paper's default
        model=DiffusionLMConfig(Masked(tokenizer.vocab), network, level=ByTime(0.0)),
        data=data,
        tokenizer=tokenizer,
        framing=framing,
        objective=Objective(Bound(), Stratified(low=1e-3)),
        sampler=Ancestral(1000),
        optimiser=Optimiser(lr=3e-4, warmup=2500),
        steps=1_000_000,
        batch=512,
        save_every=1000,
        eval_every=10_000,
    )


def _tokenizer(tokenizer: str | Tokenizer) -> Tokenizer:
    return Hub.load(tokenizer) if isinstance(tokenizer, str) else tokenizer


TINY: dict[str, Callable[[], Run]] = {f.__name__: f for f in (mdlm_tiny, ar_tiny, bd3_tiny)}
PUBLISHED: dict[str, Callable[..., Run]] = {
    f.__name__: f for f in (mdlm_text8, mdlm_lm1b, mdlm_owt, ar_owt, bd3_owt, llada_8b)
}
PRESETS: dict[str, Callable[..., Run]] = TINY | PUBLISHED
