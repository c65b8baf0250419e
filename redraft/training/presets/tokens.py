"""Published-size presets with noise on tokens, with the hyperparameters of their papers."""

from __future__ import annotations

from dataclasses import replace

from redraft.core.processes.insertion import Insertion
from redraft.core.processes.interpolating import HybridNoise, Interpolating
from redraft.core.processes.markov import AbsorbingRates, Markov
from redraft.core.processes.masked import Masked
from redraft.core.schedules.tokens import CosineRatio, Geometric, Linear
from redraft.core.text.tokenizers import TEXT8, ByteTokenizer, CharTokenizer, HubTokenizer, Tokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.picks.order import Confidence
from redraft.decoding.samplers.ancestral import Ancestral, FirstHitting
from redraft.decoding.samplers.self_correction import SelfCorrection
from redraft.decoding.samplers.unmask import Unmask
from redraft.models.config import DiffusionLMConfig
from redraft.models.heads import Head, Score, Softmax, Subs
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import BlockCausal, Causal, Full
from redraft.models.time_conditioning import ConditionOnKeep, ConditionOnSigma, ConditionOnTime, TimeConditioning
from redraft.training.data.corpora.benchmarks import Enwik8, Text8
from redraft.training.data.framing import DocumentRows, Framing, PackedRows
from redraft.training.data.sources import Corpus, HubDataset, InfiniteCorpus
from redraft.training.objectives.losses import Bound, DynamicWeight, SumOfTerms, TokenCrossEntropy
from redraft.training.objectives.objective import Objective
from redraft.training.objectives.time_samplers import StratifiedTimes
from redraft.training.runs import variations
from redraft.training.runs.run import OptimizerConfig, Run


def mdlm_text8(path: str = "text8") -> Run:
    """Masked diffusion on text8 (Sahoo et al. 2024, ≤ 1.40 bits per character): 12 × 768, 256 characters, 1M steps."""
    return _small_dit_run(CharTokenizer(TEXT8), Text8(path), PackedRows(256))


def mdlm_lm1b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Masked diffusion on LM1B with BERT's tokenizer, one padded sentence per row (perplexity ≤ 27.04 at 1M steps)."""
    return _small_dit_run(_load_tokenizer(tokenizer), HubDataset("lm1b", field="text"), DocumentRows(128))


def mdlm_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Masked diffusion on OpenWebText with GPT-2's tokenizer, packed into rows of 1024 (perplexity ≤ 23.21)."""
    return _small_dit_run(
        _load_tokenizer(tokenizer), HubDataset("Skylion007/openwebtext", field="text"), PackedRows(1024)
    )


def ar_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """The autoregressive baseline of the MDLM paper on OpenWebText: causal attention, no time (perplexity 17.54)."""
    run = variations.with_network(mdlm_owt(tokenizer), pattern=Causal(), time=None)
    return replace(run, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1)))


def bd3_owt(tokenizer: str | Tokenizer = "tokenizer.json", block: int = 16) -> Run:
    """Block diffusion on OpenWebText (Arriola et al. 2025, perplexity ≤ 22.27), times clipped to [0.3, 0.8]."""
    run = variations.with_network(mdlm_owt(tokenizer), pattern=BlockCausal(block))
    times = StratifiedTimes(low=0.3, high=0.8, block=block)
    return replace(run, objective=Objective(Bound(), times), sampler=Blocks(FirstHitting()))


def llada_8b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Pre-training like LLaDA's (Nie et al. 2025): 8.02B parameters, rows of 4096, batches of 1280 rows.

    439,000 steps are 2.3T tokens. For many GPUs: weights are sharded, and gradient checkpointing is on.
    """
    loaded = _load_tokenizer(tokenizer)
    network = TransformerConfig(width=4096, layers=32, heads=32, hidden=12_288, rotary=500_000.0, padded_vocab=126_464)
    return Run(
        model=DiffusionLMConfig(Masked(loaded.vocab), network),
        data=HubDataset("HuggingFaceFW/fineweb", field="text", streaming=True),
        tokenizer=loaded,
        framing=PackedRows(4096),
        objective=Objective(TokenCrossEntropy(power=1.0), StratifiedTimes(low=1e-3)),
        sampler=Blocks(Unmask(steps=32, pick=Confidence()), decode_block=32),
        optimizer=OptimizerConfig(lr=4e-4, betas=(0.9, 0.95), weight_decay=0.1, warmup=2000, floor=0.1),
        steps=439_000,
        batch=1280,
        shard=True,
        recompute=True,
        save_every=1000,
        eval_every=5000,
    )


def multinomial_text8(path: str = "text8") -> Run:
    """Multinomial diffusion on text8 (Hoogeboom et al. 2021, ≤ 1.72 bits per character): 12 × 512, T = 1000.

    The paper's network mixes local and linear attention; here attention is full. The paper does not state the number of
    training steps.
    """
    return _multinomial_run(CharTokenizer(TEXT8, ()), Text8(path), PackedRows(256), 1000)


def multinomial_enwik8(path: str = "enwik8") -> Run:
    """Multinomial diffusion on the bytes of enwik8 (≤ 1.75 bits per byte): rows of 320, T = 4000."""
    return _multinomial_run(ByteTokenizer(()), Enwik8(path), PackedRows(320), 4000)


def _multinomial_run(tokenizer: Tokenizer, data: Corpus, framing: PackedRows, steps: int) -> Run:
    run = _small_dit_run(tokenizer, data, framing)
    network = replace(run.model.network, width=512, heads=8, dropout=0.0)
    process = Interpolating(tokenizer.vocab, CosineRatio(), direct=True)
    model = DiffusionLMConfig(process, network, Softmax(), ConditionOnTime(4000.0))
    optimizer = OptimizerConfig(lr=1e-4, floor=0.1)
    run = replace(run, model=model, objective=Objective(Bound(steps=steps)), sampler=Ancestral(steps), batch=32)
    return replace(run, optimizer=optimizer)


def d3pm_text8(path: str = "text8") -> Run:
    """D3PM with absorbing matrices on text8 (Austin et al. 2021, ≤ 1.45 bits per character): T = 1000, λ = 0.01.

    For absorbing noise the paper's mutual-information schedule is the linear one. The last step samples from x̂ itself.
    For other transition matrices use `replace(run.model.process, jumps=…)`.
    """
    run = _small_dit_run(CharTokenizer(TEXT8), Text8(path), PackedRows(256))
    process = Markov(run.model.vocab, AbsorbingRates(), direct=True)
    return variations.with_noise(
        run, process, Objective(SumOfTerms(Bound(steps=1000), TokenCrossEntropy(), factor=10.0))
    )


def d3pm_lm1b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """D3PM with absorbing noise on LM1B, rows of 128 (perplexity ≤ 76.9); computed in closed form, without matrices."""
    run = mdlm_lm1b(tokenizer)
    return variations.with_noise(
        run, run.model.process, Objective(SumOfTerms(Bound(steps=1000), TokenCrossEntropy(), factor=10.0))
    )


def udlm_text8(path: str = "text8") -> Run:
    """Uniform noise in continuous time on text8 (Schiff et al. 2024, ≤ 1.44 bits per character); no mask token."""
    return _with_uniform_noise(_small_dit_run(CharTokenizer(TEXT8, ()), Text8(path), PackedRows(256)), Softmax())


def udlm_lm1b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Uniform noise on LM1B with BERT's tokenizer (perplexity ≤ 31.28)."""
    return _with_uniform_noise(mdlm_lm1b(tokenizer), Subs(carry_over=False))


def _with_uniform_noise(run: Run, head: Head) -> Run:
    """Replace the noise by uniform noise with α = 1 − t; the network is conditioned on σ = −log(1 − 0.999 t)."""
    process = Interpolating(run.model.vocab)
    return replace(run, model=DiffusionLMConfig(process, run.model.network, head, ConditionOnSigma(Linear(1e-3))))


def gidd_owt(tokenizer: str | Tokenizer = "tokenizer.json", p_u: float = 0.1) -> Run:
    """GIDD on OpenWebText (von Rütte et al. 2025): small network, rows of 512, 500k steps, dynamic weights.

    The paper crops documents at random; here they are packed.
    """
    run = _small_dit_run(
        _load_tokenizer(tokenizer), HubDataset("Skylion007/openwebtext", field="text"), PackedRows(512)
    )
    process = Interpolating(run.model.vocab, mixing=HybridNoise(p_u))
    network = replace(run.model.network, dropout=0.0)
    return replace(
        run,
        model=DiffusionLMConfig(process, network, Subs(carry_over=False), ConditionOnTime(1.0)),
        objective=Objective(Bound(weight=DynamicWeight()), StratifiedTimes(1e-4, 1 - 1e-4)),
        sampler=SelfCorrection(Ancestral(128)),
        optimizer=OptimizerConfig(lr=5e-4, betas=(0.9, 0.99), eps=1e-9, weight_decay=0.02, warmup=10_000, floor=0.1),
        steps=500_000,
    )


def sedd_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Score entropy with mask noise on OpenWebText (Lou et al. 2024): small network, rows of 1024, 1.3M steps."""
    return _with_score_entropy(mdlm_owt(tokenizer))


def sedd_text8(path: str = "text8") -> Run:
    """Score entropy with mask noise on text8 (≤ 1.39 bits per character)."""
    return _with_score_entropy(mdlm_text8(path))


def sedd_uniform_text8(path: str = "text8") -> Run:
    """Score entropy with uniform noise on text8 (≤ 1.47 bits per character): geometric schedule, no mask token."""
    run = udlm_text8(path)
    process = Interpolating(run.model.vocab, Geometric(1e-4, 20.0))
    return _with_score_entropy(variations.with_model(run, process=process), run.model.token_head, ConditionOnSigma())


def _with_score_entropy(
    run: Run, head: Head = Score(), level: TimeConditioning = ConditionOnSigma(Linear(1e-3))
) -> Run:
    """Condition the network on σ, with the given head; sample with SEDD's analytic steps."""
    return replace(
        variations.with_model(run, head=head, time_conditioning=level), sampler=Ancestral(1024), steps=1_300_000
    )


def flex_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Insertion on OpenWebText (Kim et al. 2025): one document per row of up to 1024 tokens, 1M steps of 1024 rows."""
    base = mdlm_owt(tokenizer)
    network = replace(base.model.network, gaps=1024, dropout=0.05)
    return replace(
        base,
        model=DiffusionLMConfig(Insertion(base.model.vocab), network, time_conditioning=ConditionOnKeep()),
        framing=DocumentRows(1024),
        objective=Objective(Bound(), StratifiedTimes(low=1e-6)),
        optimizer=OptimizerConfig(lr=3e-4, weight_decay=0.03, warmup=2000, floor=0.0),
        batch=1024,
    )


def _small_dit_run(tokenizer: Tokenizer, data: Corpus | InfiniteCorpus, framing: Framing) -> Run:
    """Return a run with the small DiT of MDLM, SEDD and BD3-LM and their training: 1M steps of 512 rows."""
    network = TransformerConfig(
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
        # the paper's default: a time embedding that always gets 0
        model=DiffusionLMConfig(Masked(tokenizer.vocab), network, time_conditioning=ConditionOnTime(0.0)),
        data=data,
        tokenizer=tokenizer,
        framing=framing,
        objective=Objective(Bound(), StratifiedTimes(low=1e-3)),
        sampler=Ancestral(1000),
        optimizer=OptimizerConfig(lr=3e-4, warmup=2500),
        steps=1_000_000,
        batch=512,
        save_every=1000,
        eval_every=10_000,
    )


def _load_tokenizer(tokenizer: str | Tokenizer) -> Tokenizer:
    return HubTokenizer.load(tokenizer) if isinstance(tokenizer, str) else tokenizer
