"""Presets: functions that return a Run, one per recipe, in one dict.

The tiny ones learn the embedded stories in minutes on a CPU. The published ones carry their papers' hyperparameters;
they read their tokenizer from a file of the user's, say `tokenizer.json` of GPT-2, and their data from files or a hub.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redraft.codecs.base import CodecConfig
from redraft.codecs.compressed import Compressed
from redraft.codecs.contextual import Contextual
from redraft.codecs.embedding import Embedding
from redraft.codecs.encoder import EncoderConfig, MaskedLM
from redraft.codecs.minilm import MiniLM
from redraft.codecs.paragraph import Paragraph
from redraft.codecs.simplex import Simplex
from redraft.codecs.size import Size
from redraft.codecs.smooth import Smooth
from redraft.data import (
    Corpus,
    Documents,
    Endless,
    Enwik8,
    Framing,
    HubDataset,
    Packed,
    StoriesData,
    Text8,
    TextFiles,
)
from redraft.e2e import e2e
from redraft.heads import Head, PredictTokens, PredictV, PredictX, Score, Softmax, Subs, VectorHead
from redraft.model import ByKeep, BySigma, ByTime, DiffusionLMConfig, Level
from redraft.networks.attention import BlockCausal, Causal, Full, Pattern
from redraft.networks.transformer import TransformerConfig
from redraft.objectives import (
    P2,
    Autoencode,
    Bound,
    Dynamic,
    Match,
    Mistakes,
    Objective,
    Recover,
    Snr,
    Stratified,
    Sum,
    Term,
)
from redraft.pairs import (
    JsonlClasses,
    JsonlPairs,
    Labelled,
    Pairs,
    Sourced,
    Spans,
    StoryAttributes,
    StoryClasses,
    StorySummaries,
)
from redraft.processes.base import Process
from redraft.processes.gaussian import Gaussian, Preserving
from redraft.processes.insertion import Insertion
from redraft.processes.interpolating import Hybrid, Interpolating
from redraft.processes.markov import Markov, MaskJumps
from redraft.processes.masked import Masked
from redraft.run import Optimiser, Run
from redraft.samplers.ancestral import Ancestral, FirstHitting
from redraft.samplers.blocks import Blocks
from redraft.samplers.correct import Correct
from redraft.samplers.ode import Ddim, EulerMaruyama, Renoise, Sampled, Until
from redraft.samplers.replaced import Replaced
from redraft.samplers.revise import Revise
from redraft.samplers.unmask import AnyOrder, Confidence, Unmask
from redraft.schedules import (
    Clamped,
    CosineOffset,
    CosineRatio,
    CosineSquared,
    Geometric,
    Linear,
    Polynomial,
    Retimed,
    Schedule,
    Sqrt,
    TanD,
)
from redraft.stories import STORIES
from redraft.text import TEXT8, Bytes, Characters, Hub, Tokenizer, Words

STORY_LENGTH = 68  # tokens: the longest story and its end sign
STORY_LETTERS = 320  # the same in characters
ATTRIBUTES_LENGTH = 17  # tokens: what a story is to be about
SUMMARY_LENGTH = 20  # tokens: a summary and its end sign


# --- tiny: the embedded stories ---


def mdlm_tiny() -> Run:
    """Masked diffusion: a story is uncovered word by word, in any order."""
    return replace(_tiny(), sampler=Unmask(64, AnyOrder()))


def ar_tiny() -> Run:
    """The autoregressive baseline: the same network with causal attention, exact likelihood."""
    base = _tiny()
    tiny = _with_pattern(base, Causal(base.model.vocab.masked))
    return replace(tiny, objective=Objective(Bound(steps=1)), sampler=Blocks(Ancestral(1), stop=base.model.vocab.eos))


def bd3_tiny() -> Run:
    """Block diffusion between the two: blocks of eight tokens, each with its own time."""
    base, block = _tiny(), 8
    tiny = _with_pattern(base, BlockCausal(block))
    return replace(
        tiny,
        objective=Objective(Recover(), Stratified(block=block)),
        sampler=Blocks(Ancestral(16), stop=base.model.vocab.eos),
    )


def mdlm_tiny_chars() -> Run:
    """Masked diffusion letter by letter: longer rows, fewer of them."""
    base, letters = _tiny(), Characters.collect([*STORIES.words(), " "], ("eos", "mask"))
    network = TransformerConfig(letters.vocab.size, width=128, layers=4, heads=4, positions=STORY_LETTERS + 1)
    return replace(
        base,
        model=DiffusionLMConfig(Masked(letters.vocab), network),
        tokenizer=letters,
        framing=Documents(STORY_LETTERS, tail=True),
        batch=16,
    )


def udlm_tiny() -> Run:
    """Uniform noise: words become other words, and any of them may be revised until the end."""
    base = _tiny()
    return _with_noise(base, Interpolating(base.model.vocab), Objective(Bound()))


def gidd_tiny() -> Run:
    """Hybrid noise, half way a fifth of all tokens uniform: words are revealed, doubted and corrected.

    Equal steps of this schedule suit the square-root ends of the noise.
    """
    base = _tiny()
    process = Interpolating(base.model.vocab, CosineSquared(), Hybrid(0.2))
    run = _with_noise(base, process, Objective(Bound(weight=Dynamic())))
    return replace(run, sampler=Correct(Ancestral(64), steps=32))


def multinomial_tiny() -> Run:
    """Multinomial diffusion: uniform noise as a chain of a thousand steps with its cosine schedule."""
    base = _tiny()
    return _with_noise(base, Interpolating(base.model.vocab, CosineRatio()), Objective(Bound(steps=1000)))


def d3pm_tiny() -> Run:
    """D3PM with dense matrices, here absorbing ones, and the hybrid loss: the bound plus plain cross-entropy."""
    base = _tiny()
    loss = Sum(Bound(steps=1000), Recover(), factor=1.0)
    return _with_noise(base, Markov(base.model.vocab, MaskJumps()), Objective(loss))


def sedd_tiny() -> Run:
    """Score entropy with mask noise: masked diffusion whose x̂ need not sum to one."""
    base = _tiny()
    return replace(base, model=replace(base.model, head=Score()))


def sedd_uniform_tiny() -> Run:
    """Score entropy with uniform noise, geometric as in the paper: both ends of time count in the bound."""
    base = udlm_tiny()
    process = Interpolating(base.model.vocab, Geometric(1e-4, 20.0))
    return replace(base, model=replace(base.model, process=process, level=BySigma()))


def flex_tiny() -> Run:
    """Insertion: texts grow while they are written and need no end sign; holes may be of any length.

    Equal steps of the schedules are small at the end, where a step that inserts nothing would cost the last words.
    Words move as others arrive, but learned positions beside rotary ones still learn faster.
    """
    base, words = _tiny(), Words(STORIES.words(), ("pad", "mask"))
    process = Insertion(words.vocab, Polynomial(2.0), Polynomial(2.0))
    network = TransformerConfig(
        words.vocab.size, width=128, layers=2, heads=8, positions=STORY_LENGTH + 1, time=64, gaps=STORY_LENGTH
    )
    return replace(base, model=DiffusionLMConfig(process, network), tokenizer=words, framing=Documents(STORY_LENGTH))


def gstar_tiny() -> Run:
    """The error layer of G-Star on top of `mdlm_tiny`: train that first, or name another base."""
    return gstar(mdlm_tiny(), base="runs/mdlm_tiny")


def gstar(run: Run, base: str) -> Run:
    """The error layer on top of any run of masked diffusion, whose model, in the directory `base`, stays as it is."""
    return replace(
        run,
        base=base,
        model=replace(run.model, errors=True),
        objective=Mistakes(),
        sampler=Revise(64),
        optimiser=Optimiser(lr=1e-2, warmup=20, floor=0.0, ema=0.98),
        steps=run.steps // 4,
    )


def _tiny() -> Run:
    """Words of the stories, mask noise, and a network that learns them in minutes.

    Plain masked cross-entropy learns faster than the bound at this size; the bound evaluates. Learned positions: a
    word's place tells much of its part in a story, and with rotary ones alone a wholly masked row looks the same
    everywhere, so that nothing tells its beginning.
    """
    words = Words(STORIES.words())
    network = TransformerConfig(
        words.vocab.size, width=128, layers=2, heads=8, rotary=None, positions=STORY_LENGTH + 1
    )  # one position more: the start sign of a causal network
    return Run(
        model=DiffusionLMConfig(Masked(words.vocab), network),
        data=StoriesData(),
        tokenizer=words,
        framing=Documents(STORY_LENGTH, tail=True),
        objective=Objective(Recover()),
        sampler=Ancestral(64),
        optimiser=Optimiser(lr=3e-3, muon=0.005, warmup=40, floor=0.0, ema=0.995),
        steps=2000,
        batch=32,
    )


def diffusion_lm_tiny() -> Run:
    """Diffusion-LM: every word has a learned vector, and a story is drawn out of Gaussian noise."""
    return with_embedding(_tiny())


def with_embedding(run: Run) -> Run:
    """The same run on learned vectors of 32 numbers; the network names words, and x̂ is the mean of their vectors.

    Cross-entropy, begun with what z alone tells (Plaid), learns faster here than the squared error of Diffusion-LM.
    Noise is spread over the levels at which a word or its kind is in doubt: `redraft levels` measures them.
    """
    process = Gaussian(run.model.vocab, Preserving(Retimed((1.0, -6.0))))
    return with_vectors(run, process, Embedding(32, kinds=0.75), PredictTokens(prior=True), Recover(), hint=False)


def with_vectors(
    run: Run,
    process: Gaussian,
    codec: CodecConfig,
    head: VectorHead = PredictX(),
    loss: Term = Match(),
    hint: bool = True,
) -> Run:
    """The same run on the vectors of a codec: its network reads and gives vectors, sees time, and takes hints."""
    network = replace(run.model.network, time=run.model.network.time or 64)
    model = DiffusionLMConfig.of_vectors(process, network, head, codec=codec, hint=hint)
    return replace(run, model=model, objective=Objective(loss), sampler=Ancestral(64))


def diffuseq_tiny() -> Run:
    """DiffuSeq: what a story is to be about and the story in one row; noise falls on the story alone."""
    return _embedded_pairs(StoryAttributes(), Pairs(ATTRIBUTES_LENGTH + 1 + STORY_LENGTH, ATTRIBUTES_LENGTH))


def whole_rows(run: Run) -> Run:
    """The same run without partial noising: sources are learnt like targets, and only given when a text is written."""
    if not isinstance(run.framing, Pairs):
        raise ValueError(f"{type(run.framing).__name__} has no source in its rows; use Pairs")
    return replace(run, framing=replace(run.framing, joint=True), sampler=Replaced(run.sampler))


def diffuseq_summary_tiny() -> Run:
    """DiffuSeq: a story and its summary in one sentence."""
    return _embedded_pairs(StorySummaries(), Pairs(STORY_LENGTH + SUMMARY_LENGTH, STORY_LENGTH - 1))


def genie_tiny() -> Run:
    """GENIE: an encoder reads what a story is to be about, the denoiser attends to its states."""
    return _genie_tiny(StoryAttributes(), Sourced(STORY_LENGTH + 1, ATTRIBUTES_LENGTH + 1))


def genie_summary_tiny() -> Run:
    """GENIE: an encoder reads a story, the denoiser writes its summary."""
    return _genie_tiny(StorySummaries(), Sourced(SUMMARY_LENGTH + 1, STORY_LENGTH))


def genie_cpd_tiny() -> Run:
    """The pre-training of GENIE: a span of a story, three tenths of it, is written from the rest.

    A base for the others: `redraft train genie_tiny --base runs/genie_cpd_tiny`.
    """
    return _genie_tiny(StoriesData(), Spans(STORY_LENGTH // 3, STORY_LENGTH))


def _genie_tiny(data: Endless, framing: Sourced | Spans) -> Run:
    """With positions for the longest rows and sources of all, so that one may begin with the weights of another."""
    run = _embedded_pairs(data, framing)
    network = replace(run.model.network, positions=STORY_LENGTH + 1)
    return with_encoder(replace(run, model=replace(run.model, network=network)), positions=STORY_LENGTH)


def with_encoder(run: Run, layers: int = 2, positions: int | None = None) -> Run:
    """The same run with an encoder as wide as its network, for sources that stand beside the row.

    A tenth of the rows loses its source, so that guidance can compare.
    """
    if not isinstance(run.framing, Sourced | Spans) or not isinstance(run.objective, Objective):
        raise ValueError(f"an encoder reads sources beside the row: use Sourced or Spans, not {run.framing}")
    network = run.model.network
    reads = replace(network, vectors=None, time=None, pattern=Full(), vocab=run.model.vocab.size, layers=layers)
    encoder = replace(reads, positions=positions or run.framing.source, tied=True, head_bias=False)
    model = replace(run.model, network=replace(network, cross=network.width), encoder=encoder)
    return replace(run, model=model, objective=replace(run.objective, untold=0.1))


def _embedded_pairs(data: Endless, framing: Pairs | Sourced | Spans) -> Run:
    """Stories and what belongs to them, as vectors of their words."""
    return with_embedding(with_words(_tiny(), Words(STORIES.words(), ("bos", "eos", "mask")), data, framing))


def with_words(run: Run, tokenizer: Tokenizer, data: Corpus | Endless, framing: Framing) -> Run:
    """The same masked diffusion on other texts, with a position for each place of their rows."""
    network = replace(run.model.network, vocab=tokenizer.vocab.size, positions=framing.length)
    model = DiffusionLMConfig(Masked(tokenizer.vocab), network)
    return replace(run, model=model, data=data, tokenizer=tokenizer, framing=framing)


def ssd_tiny(block: int = 17) -> Run:
    """SSD-LM: words are corners of a simplex; a story is written in four blocks, each redrawn again and again."""
    base = _with_pattern(_tiny(), BlockCausal(block))
    process = Gaussian(base.model.vocab, Preserving(Clamped(CosineOffset(1e-4), -12.0, 6.0)))
    return replace(
        with_vectors(base, process, Simplex(), PredictTokens(), hint=False),
        objective=Objective(Recover(), Stratified(block=block)),
        sampler=Blocks(Renoise(32, project=Sampled()), stop=base.model.vocab.eos),
    )


def tencdm_codec_tiny() -> Run:
    """The codec of TEncDM: an encoder that learns to guess masked words, and a decoder of its noisy states."""
    return codec_of(tencdm_tiny())


def tencdm_tiny() -> Run:
    """TEncDM: diffusion of an encoder's states, a vector for each word that knows its neighbours.

    Train `tencdm_codec_tiny` first. The schedule is noisy from early on: 64 coordinates tell a word through much noise.
    """
    codec = Contextual(MaskedLM(STORY_LENGTH, Size(width=64)), STORY_LENGTH, Size(layers=1))
    return _tiny_latents(codec, TanD(7.0), base="runs/tencdm_codec_tiny")


def ld4tg_codec_tiny() -> Run:
    """The codec of LD4TG: seventeen latents of 32 numbers, from which a causal decoder tells the story."""
    return codec_of(ld4tg_tiny())


def ld4tg_tiny() -> Run:
    """LD4TG: diffusion of a compressed story; train `ld4tg_codec_tiny` first."""
    codec = Compressed(MaskedLM(STORY_LENGTH, Size(width=64)), STORY_LENGTH, 17, noise=0.3)
    return _tiny_latents(codec, CosineSquared(), PredictV(), Match(Snr(1.0)), base="runs/ld4tg_codec_tiny")


def ld4tg_class_tiny() -> Run:
    """LD4TG told the mood of a story; train `ld4tg_codec_tiny` first."""
    return with_classes(ld4tg_tiny(), StoryClasses("mood"))


def with_classes(run: Run, data: StoryClasses | JsonlClasses) -> Run:
    """The same run on texts of classes, for a network that sees time: the class is told with it.

    A tenth of the rows loses its class, so that guidance can compare.
    """
    if not isinstance(run.objective, Objective):
        raise ValueError(f"a class is told to a denoiser, and {type(run.objective).__name__}() trains none")
    model = replace(run.model, network=replace(run.model.network, classes=len(data.classes)))
    framing = Labelled(run.framing.length, tail=not run.framing.padded)
    return replace(run, model=model, data=data, framing=framing, objective=replace(run.objective, untold=0.1))


def planner_codec_tiny() -> Run:
    """The codec of PLANNER: a variational embedding of whole stories, and a causal decoder."""
    return codec_of(planner_tiny())


def planner_tiny() -> Run:
    """PLANNER: diffusion of a story's embedding; train `planner_codec_tiny` first."""
    codec = Paragraph(STORY_LENGTH, beta=0.01, forget=0.5)
    run = _tiny_latents(codec, CosineSquared(), loss=Match(P2()), base="runs/planner_codec_tiny")
    return replace(run, sampler=Ddim(30))


def cosmos_codec_tiny() -> Run:
    """The codec of COSMOS: seventeen latents made smooth by noise and masks, decompressed in parallel."""
    return codec_of(cosmos_tiny())


def cosmos_tiny() -> Run:
    """COSMOS: diffusion of a smooth compressed space; train `cosmos_codec_tiny` first."""
    codec = Smooth(MaskedLM(STORY_LENGTH, Size(width=64)), STORY_LENGTH, 17)
    return _tiny_latents(codec, TanD(3.0), base="runs/cosmos_codec_tiny")


def codec_of(run: Run, batch: int = 8) -> Run:
    """The first stage of a latent diffusion: the codec alone, by its own losses; its denoiser stays untrained.

    Small batches, for many steps in few minutes.
    """
    return replace(run, base=None, objective=Autoencode(), samples=0, batch=batch)


def diffusion_on(run: Run, base: str, loss: Term = Match()) -> Run:
    """The second stage: the diffusion of the latents of a codec that was trained before, in the directory `base`."""
    return replace(run, base=base, objective=Objective(loss))


def _tiny_latents(
    codec: CodecConfig, schedule: Schedule, head: VectorHead = PredictX(), loss: Term = Match(), *, base: str
) -> Run:
    run = _tiny()
    process = Gaussian(run.model.vocab, Preserving(Clamped(schedule, -12.0, 4.0)))
    return diffusion_on(with_vectors(run, process, codec, head), base, loss)


def _with_noise(run: Run, process: Process, objective: Objective) -> Run:
    """Another process, for a network that sees time and may doubt what it sees: nothing is carried over."""
    network = replace(run.model.network, time=run.model.network.time or 64)
    model = DiffusionLMConfig(process, network, Subs(carry_over=False))
    return replace(run, model=model, objective=objective)


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


def multinomial_text8(path: str = "text8") -> Run:
    """Multinomial diffusion on text8 (Hoogeboom et al. 2021, ≤ 1.72 bits per character): 12 × 512, T = 1000.

    Their network attends locally and linearly; ours has full attention. They do not state the number of steps.
    """
    return _multinomial(Characters(TEXT8, ()), Text8(path), Packed(256), 1000)


def multinomial_enwik8(path: str = "enwik8") -> Run:
    """Multinomial diffusion on the bytes of enwik8 (≤ 1.75 bits per byte): chunks of 320, T = 4000."""
    return _multinomial(Bytes(()), Enwik8(path), Packed(320), 4000)


def _multinomial(tokenizer: Tokenizer, data: Corpus, framing: Packed, steps: int) -> Run:
    run = _small(tokenizer, data, framing)
    network = replace(run.model.network, width=512, heads=16, dropout=0.0)
    model = DiffusionLMConfig(Interpolating(tokenizer.vocab, CosineRatio()), network, Softmax(), ByTime(4000.0))
    rate = Optimiser(lr=1e-4, floor=0.1)
    run = replace(run, model=model, objective=Objective(Bound(steps=steps)), sampler=Ancestral(steps), batch=32)
    return replace(run, optimiser=rate)


def d3pm_text8(path: str = "text8") -> Run:
    """D3PM with absorbing matrices on text8 (Austin et al. 2021, ≤ 1.45 bits per character): T = 1000, λ = 0.01.

    Absorbing noise loses information evenly under the linear schedule, which is their mutual-information schedule. The
    last step draws x̂ itself. Other jumps: `replace(run.model.process, jumps=…)`.
    """
    run = _small(Characters(TEXT8), Text8(path), Packed(256))
    process = Markov(run.model.vocab, MaskJumps(), direct=True)
    return _with_noise(run, process, Objective(Sum(Bound(steps=1000), Recover(), factor=10.0)))


def d3pm_lm1b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """D3PM-absorbing on LM1B, rows of 128 (perplexity ≤ 76.9); at this vocabulary in closed form, not with matrices."""
    run = mdlm_lm1b(tokenizer)
    return _with_noise(run, run.model.process, Objective(Sum(Bound(steps=1000), Recover(), factor=10.0)))


def udlm_text8(path: str = "text8") -> Run:
    """Uniform noise in continuous time on text8 (Schiff et al. 2024, ≤ 1.44 bits per character); there is no mask."""
    return _udlm(_small(Characters(TEXT8, ()), Text8(path), Packed(256)), Softmax())


def udlm_lm1b(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Uniform noise on LM1B with BERT's tokenizer (perplexity ≤ 31.28)."""
    return _udlm(mdlm_lm1b(tokenizer), Subs(carry_over=False))


def _udlm(run: Run, head: Head) -> Run:
    """α = 1 − t, of which the network is told σ = −log(1 − 0.999 t)."""
    process = Interpolating(run.model.vocab)
    return replace(run, model=DiffusionLMConfig(process, run.model.network, head, BySigma(Linear(1e-3))))


def sedd_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Score entropy with mask noise on OpenWebText (Lou et al. 2024): small network, rows of 1024, 1.3M steps."""
    return _sedd(mdlm_owt(tokenizer))


def sedd_text8(path: str = "text8") -> Run:
    """Score entropy with mask noise on text8 (≤ 1.39 bits per character)."""
    return _sedd(mdlm_text8(path))


def sedd_uniform_text8(path: str = "text8") -> Run:
    """Score entropy with uniform noise on text8 (≤ 1.47 bits per character): geometric noise; there is no mask."""
    run = udlm_text8(path)
    process = Interpolating(run.model.vocab, Geometric(1e-4, 20.0))
    return _sedd(replace(run, model=replace(run.model, process=process)), run.model.token_head, BySigma())


def _sedd(run: Run, head: Head = Score(), level: Level = BySigma(Linear(1e-3))) -> Run:
    """A network that is told σ, with "analytic" steps to sample."""
    model = replace(run.model, head=head, level=level)
    return replace(run, model=model, sampler=Ancestral(1024), steps=1_300_000)


def gidd_owt(tokenizer: str | Tokenizer = "tokenizer.json", p_u: float = 0.1) -> Run:
    """GIDD on OpenWebText (von Rütte et al. 2025): small network, rows of 512, 500k steps, dynamic weights.

    They crop documents at random; here they are packed.
    """
    run = _small(_tokenizer(tokenizer), HubDataset("Skylion007/openwebtext", field="text"), Packed(512))
    process = Interpolating(run.model.vocab, mixing=Hybrid(p_u))
    network = replace(run.model.network, dropout=0.0)
    return replace(
        run,
        model=DiffusionLMConfig(process, network, Subs(carry_over=False), ByTime(1.0)),
        objective=Objective(Bound(weight=Dynamic()), Stratified(1e-4, 1 - 1e-4)),
        sampler=Correct(Ancestral(128)),
        optimiser=Optimiser(lr=5e-4, betas=(0.9, 0.99), eps=1e-9, weight_decay=0.02, warmup=10_000, floor=0.1),
        steps=500_000,
    )


def flex_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """Insertion on OpenWebText (Kim et al. 2025): one document per row of up to 1024 tokens, 1M steps of 1024 rows."""
    base = mdlm_owt(tokenizer)
    network = replace(base.model.network, gaps=1024, dropout=0.05)
    return replace(
        base,
        model=DiffusionLMConfig(Insertion(base.model.vocab), network, level=ByKeep()),
        framing=Documents(1024),
        objective=Objective(Bound(), Stratified(low=1e-6)),
        optimiser=Optimiser(lr=3e-4, weight_decay=0.03, warmup=2000, floor=0.0),
        batch=1024,
    )


def tencdm_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """TEncDM on ROCStories, one to a line (Shabalin et al. 2024): 12 × 768, rows of 64, tan-9, 200k steps of 512 rows.

    Their encoder is BERT's base model, `MiniLM(folder, 12, vocab, 768, 12, 3072)`; their network has skip connections.
    """
    codec = Contextual(encoder, 64, Size(768, 3, 12), noise=0.9)  # the noise of tan-9 at t = 0.15
    return _as_tencdm(_latent_roc(_tokenizer(tokenizer), path, codec, TanD(9.0)), "runs/tencdm_codec_roc")


def _as_tencdm(run: Run, base: str) -> Run:
    rate = Optimiser(lr=2e-4, betas=(0.9, 0.98), weight_decay=0.01, warmup=5000)
    run = replace(run, optimiser=rate, sampler=EulerMaruyama(50, Until(0.01)), steps=200_000, batch=512)
    return diffusion_on(run, base)


def tencdm_codec_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """The codec of `tencdm_roc`: a decoder of three layers; they train it for one epoch in rows of 64."""
    run = codec_of(tencdm_roc(tokenizer, path, encoder))
    return replace(run, optimiser=Optimiser(lr=1e-4, warmup=100), steps=10_000, batch=64)


def tencdm_prose(
    tokenizer: str | Tokenizer = "tokenizer.json",
    paths: tuple[str, ...] = ("prose.txt",),
    encoder: EncoderConfig = MiniLM(),
) -> Run:
    """TEncDM in the small on paragraphs of prose, with a pretrained encoder: 4 × 256, rows of 64, tan-9.

    No sizes of a paper: it learns something in half an hour on a CPU.
    """
    text = _tokenizer(tokenizer)
    base = with_words(_tiny(), text, TextFiles(paths), Documents(64, tail=True))
    network = replace(base.model.network, width=256, layers=4)
    process = Gaussian(text.vocab, Preserving(Clamped(TanD(9.0), -12.0, 2.0)))
    codec = Contextual(encoder, 64, Size(256, 1))
    run = with_vectors(replace(base, model=replace(base.model, network=network), batch=16), process, codec)
    return diffusion_on(run, "runs/tencdm_codec_prose")


def tencdm_codec_prose(
    tokenizer: str | Tokenizer = "tokenizer.json",
    paths: tuple[str, ...] = ("prose.txt",),
    encoder: EncoderConfig = MiniLM(),
) -> Run:
    """The codec of `tencdm_prose`: a decoder of one layer."""
    return codec_of(tencdm_prose(tokenizer, paths, encoder), 16)


def ld4tg_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """LD4TG on ROCStories (Lovelace et al. 2022): 32 latents of 64 numbers, 12 × 768, v, cosine, 250k steps.

    Their encoder and decoder are BART's; here the decoder is a causal one of our own, trained in the first stage. Their
    steps have the large variance, whose bound has no continuous-time limit; ours have the posterior's.
    """
    codec = Compressed(encoder, 64, 32, 64, Size(768, 3, 12), Size(768, 6, 12))
    run = _latent_roc(_tokenizer(tokenizer), path, codec, CosineSquared(), PredictV())
    rate = Optimiser(lr=2e-4, warmup=1000, floor=0.0)
    run = replace(run, optimiser=rate, sampler=Ancestral(250), steps=250_000, batch=128)
    return diffusion_on(run, "runs/ld4tg_codec_roc", Match(Snr(1.0)))


def ld4tg_codec_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """The codec of `ld4tg_roc`: 50k steps of 256 rows."""
    run = codec_of(ld4tg_roc(tokenizer, path, encoder))
    return replace(run, optimiser=Optimiser(lr=1e-4, warmup=1000), steps=50_000, batch=256)


def cosmos_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """COSMOS on ROCStories (2025): 16 latents of 768 numbers, 12 × 768, trained as `tencdm_roc`.

    The layers of compressor and decompressor and tan-3 are ours: the reference names none, only that d is smaller.
    """
    codec = Smooth(encoder, 64, 16, 768, Size(768, 6, 12), Size(768, 6, 12))
    return _as_tencdm(_latent_roc(_tokenizer(tokenizer), path, codec, TanD(3.0)), "runs/cosmos_codec_roc")


def cosmos_codec_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """The codec of `cosmos_roc`: 50k steps of 256 rows."""
    run = codec_of(cosmos_roc(tokenizer, path, encoder))
    return replace(run, optimiser=Optimiser(lr=1e-4, warmup=1000), steps=50_000, batch=256)


def planner_reviews(tokenizer: str | Tokenizer = "tokenizer.json", path: str = "reviews.txt") -> Run:
    """PLANNER on hotel reviews, one to a line (Zhang et al. 2023): 16 latents of 1024 numbers, 28 layers, x with P2.

    Embedder and decoder have the sizes of BERT-large and GPT-2-medium, but begin untrained; rows of 256 and the number
    of steps are ours.
    """
    codec = Paragraph(256, 16, 1024, Size(1024, 24, 16), Size(1024, 24, 16))
    run = _small(_tokenizer(tokenizer), TextFiles((path,), split_by="line"), Documents(256, tail=True))
    network = replace(run.model.network, width=1152, layers=28, heads=16)
    process = Gaussian(run.model.vocab, Preserving(Clamped(CosineSquared())))
    run = with_vectors(replace(run, model=replace(run.model, network=network)), process, codec, hint=False)
    run = replace(run, optimiser=Optimiser(lr=1e-4, warmup=1000), sampler=Ddim(30), steps=250_000, batch=128)
    return diffusion_on(run, "runs/planner_codec_reviews", Match(P2()))


def planner_codec_reviews(tokenizer: str | Tokenizer = "tokenizer.json", path: str = "reviews.txt") -> Run:
    """The codec of `planner_reviews`: 50k steps of 64 rows."""
    return replace(codec_of(planner_reviews(tokenizer, path)), steps=50_000, batch=64)


def _latent_roc(
    tokenizer: Tokenizer, path: str, codec: CodecConfig, schedule: Schedule, head: VectorHead = PredictX()
) -> Run:
    """Rows of 64 tokens that end in end signs, and the small DiT on the latents of a codec, with hints."""
    run = _small(tokenizer, TextFiles((path,), split_by="line"), Documents(64, tail=True))
    return with_vectors(run, Gaussian(tokenizer.vocab, Preserving(Clamped(schedule))), codec, head)


def diffusion_lm_e2e(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "e2e_nlg") -> Run:
    """Diffusion-LM on the sentences of E2E (Li et al. 2022): 12 × 768, vectors of 16, rows of 64, 200k steps."""
    return _diffusion_lm(_tokenizer(tokenizer), e2e(folder), Embedding(16, unit=False), 200_000)


def diffusion_lm_roc(tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt") -> Run:
    """Diffusion-LM on ROCStories, one to a line: vectors of 128, 800k steps (their code says 400k)."""
    stories = TextFiles((path,), split_by="line")
    return _diffusion_lm(_tokenizer(tokenizer), stories, Embedding(128, unit=False), 800_000)


def _diffusion_lm(tokenizer: Tokenizer, data: Corpus, codec: Embedding, steps: int) -> Run:
    run = _vectors_published(tokenizer, data, Documents(64, tail=True), layers=12)
    process, network = run.model.process, run.model.network
    assert isinstance(process, Gaussian)
    model = DiffusionLMConfig.of_vectors(process, network, PredictX(), codec=codec)
    rate = Optimiser(lr=1e-4, floor=0.0)
    return replace(run, model=model, optimiser=rate, steps=steps, batch=64)


def diffuseq_qqp(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "QQP", steps: int = 50_000) -> Run:
    """DiffuSeq on paraphrases (Gong et al. 2023): 12 × 768, vectors of 128, rows of 128, steps of 2048 rows.

    Other tasks of the paper are other folders and steps: questions 40k, dialogue 140k, simplification 80k. Its code
    draws times by importance, as `redraft.importance` measures it, and chooses among ten texts (`minimum_risk`).
    """
    files = _folder_of_pairs(folder, "src", "trg")
    run = _vectors_published(_tokenizer(tokenizer), files, Pairs(128, 63), layers=12)
    return replace(run, optimiser=Optimiser(lr=1e-4), steps=steps, batch=2048)


def diffuseq_e2e(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "e2e_nlg") -> Run:
    """DiffuSeq in the small on E2E, attributes of a restaurant → a sentence about it: 4 × 128, vectors of 32.

    No sizes of a paper: it learns something in half an hour on a CPU.
    """
    text = _tokenizer(tokenizer)
    base = with_words(_tiny(), text, e2e(folder), Pairs(104, 50))
    network = replace(base.model.network, layers=4)
    return with_embedding(replace(base, model=replace(base.model, network=network)))


def genie_xsum(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "xsum") -> Run:
    """GENIE on summaries of news (Lin et al. 2023): 6 + 6 layers × 768, sources of 512 tokens, 120k steps.

    It begins with the weights of `genie_cpd_books`; their encoder begins with BERT's.
    """
    files = _folder_of_pairs(folder, "src", "trg")
    run = _vectors_published(_tokenizer(tokenizer), files, Sourced(64, 512), layers=6, positions=156)
    rate = Optimiser(lr=5e-5, warmup=7200)
    return replace(with_encoder(run, 6), optimiser=rate, base="runs/genie_cpd_books", steps=120_000, batch=64)


def genie_cpd_books(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """The pre-training of GENIE: spans of three tenths of 512 tokens; theirs reads 160 GB of text, for fifty days."""
    data = HubDataset("bookcorpus", field="text")
    run = with_encoder(_vectors_published(_tokenizer(tokenizer), data, Spans(156, 512), layers=6), 6)
    return replace(run, optimiser=Optimiser(lr=1e-4, warmup=300_000), steps=5_000_000, batch=4096)


def ssd_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """SSD-LM on OpenWebText (Han et al. 2023): 24 × 1024, rows of 200 in blocks of 25, 100k steps, 1000 to write one.

    They begin with RoBERTa's weights and train one block after a context of any length; here all blocks of a row
    learn at once, each after the clean ones before it. The number of rows is ours.
    """
    run = _with_pattern(_small(_tokenizer(tokenizer), mdlm_owt(tokenizer).data, Packed(200)), BlockCausal(25))
    network = replace(run.model.network, width=1024, layers=24, heads=16)
    process = Gaussian(run.model.vocab, Preserving(Clamped(CosineOffset(1e-4))))
    run = replace(run, model=replace(run.model, network=network))
    return replace(
        with_vectors(run, process, Simplex(), PredictTokens(), hint=False),
        objective=Objective(Recover(), Stratified(block=25)),
        sampler=Blocks(Renoise(1000, project=Sampled(0.9))),
        optimiser=Optimiser(lr=1e-4, weight_decay=0.01, warmup=2000),
        steps=100_000,
    )


def _vectors_published(
    tokenizer: Tokenizer, data: Corpus, framing: Framing, layers: int, positions: int | None = None
) -> Run:
    """The noise and the loss of Diffusion-LM with learned positions; sampling in 2000 steps, as in training."""
    run = _small(tokenizer, data, framing)
    network = replace(run.model.network, layers=layers, rotary=None, positions=positions or framing.length)
    process = Gaussian(tokenizer.vocab, Preserving(Clamped(Sqrt())))
    run = replace(run, model=replace(run.model, network=network))
    return replace(with_vectors(run, process, Embedding(128, unit=False), hint=False), sampler=Ancestral(2000))


def _folder_of_pairs(folder: str, source: str, target: str) -> JsonlPairs:
    """train.jsonl, valid.jsonl and test.jsonl, as DiffuSeq's data come."""
    train, valid, test = ((f"{folder}/{split}.jsonl",) for split in ("train", "valid", "test"))
    return JsonlPairs(train, valid, test, source=source, target=target)


def _small(tokenizer: Tokenizer, data: Corpus | Endless, framing: Framing) -> Run:
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


PURPOSES: dict[str, tuple[Callable[..., Run], ...]] = {
    "Minutes on a laptop, on the embedded stories: noise of tokens": (
        mdlm_tiny,
        ar_tiny,
        bd3_tiny,
        mdlm_tiny_chars,
        udlm_tiny,
        gidd_tiny,
        multinomial_tiny,
        d3pm_tiny,
        sedd_tiny,
        sedd_uniform_tiny,
        gstar_tiny,
        flex_tiny,
    ),
    "The same: Gaussian noise of word vectors": (
        diffusion_lm_tiny,
        diffuseq_tiny,
        diffuseq_summary_tiny,
        genie_tiny,
        genie_summary_tiny,
        genie_cpd_tiny,
        ssd_tiny,
    ),
    "The same: Gaussian noise of latents, each after its codec": (
        tencdm_codec_tiny,
        tencdm_tiny,
        ld4tg_codec_tiny,
        ld4tg_tiny,
        ld4tg_class_tiny,
        planner_codec_tiny,
        planner_tiny,
        cosmos_codec_tiny,
        cosmos_tiny,
    ),
    "Half an hour on a laptop, on text of your own": (
        diffuseq_e2e,
        tencdm_codec_prose,
        tencdm_prose,
    ),
    "Published sizes, for GPUs: noise of tokens": (
        mdlm_text8,
        mdlm_lm1b,
        mdlm_owt,
        ar_owt,
        bd3_owt,
        llada_8b,
        multinomial_text8,
        multinomial_enwik8,
        d3pm_text8,
        d3pm_lm1b,
        udlm_text8,
        udlm_lm1b,
        gidd_owt,
        sedd_owt,
        sedd_text8,
        sedd_uniform_text8,
        flex_owt,
    ),
    "Published sizes: Gaussian noise of word vectors": (
        diffusion_lm_e2e,
        diffusion_lm_roc,
        diffuseq_qqp,
        genie_xsum,
        genie_cpd_books,
        ssd_owt,
    ),
    "Published sizes: Gaussian noise of latents, each after its codec": (
        tencdm_codec_roc,
        tencdm_roc,
        ld4tg_codec_roc,
        ld4tg_roc,
        cosmos_codec_roc,
        cosmos_roc,
        planner_codec_reviews,
        planner_reviews,
    ),
}
PRESETS: dict[str, Callable[..., Run]] = {f.__name__: f for functions in PURPOSES.values() for f in functions}
TINY: dict[str, Callable[[], Run]] = {name: f for name, f in PRESETS.items() if "_tiny" in name}
PUBLISHED: dict[str, Callable[..., Run]] = {name: f for name, f in PRESETS.items() if name not in TINY}
