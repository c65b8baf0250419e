"""The denoiser: process, network, head and tokenizer in one module, and its lazy prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from redraft.core.batch import Batch, EncodedBatch
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Prediction
from redraft.core.processes.base import Process, require_times, require_vectors
from redraft.core.processes.gaussian import Gaussian
from redraft.core.text.chat_template import prompt_ids
from redraft.core.text.tokenizers import HubTokenizer, Tokenizer
from redraft.models.auxiliary.attribute_classifier import AttributeClassifier
from redraft.models.auxiliary.error_head import ErrorHead
from redraft.models.canvas_builder import (
    TemplatePiece,
    _CanvasBuilder,
    _parse_template,
    _prompt_mask,
    _require_labels,
    _require_rows,
    _TextOrIds,
    make_hole,
    text_positions,
)
from redraft.models.config import DiffusionLMConfig
from redraft.models.heads import VectorHead
from redraft.models.lazy_prediction import LazyPrediction
from redraft.models.networks.attention import BlockCausal, Causal
from redraft.models.networks.transformer import Transformer


class DiffusionLM(nn.Module):
    """A denoiser: predicts the clean sequence behind a noisy one. It is what a checkpoint holds.

    The network runs only when the prediction is queried, for the rows and positions in the query. DDP, FSDP2 and the
    like must therefore wrap `TrainStep`, where the queries happen, never the model alone.
    """

    def __init__(self, config: DiffusionLMConfig, tokenizer: Tokenizer | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.assumed: tuple[str, ...] = ()  # of a foreign model: what its files left open
        self.network = Transformer(config.network, config.ports)
        self.errors = ErrorHead(config.network) if config.errors else None
        self.attributes = (
            AttributeClassifier(config.network, config.vocab.size, config.attributes) if config.attributes else None
        )
        self.codec = None if config.codec is None else config.codec.build(config.vocab)
        self.tagger = config.build_tagger()
        self.drafter = config.build_drafter(self.network)
        self.encoder = None if config.encoder is None else Transformer(config.encoder, config.source_ports)

    @property
    def process(self) -> Process:
        return self.config.process

    @property
    def block(self) -> int | None:
        """How many tokens the attention pattern writes at a time: the size of a block, or None for all of them."""
        pattern = self.config.network.pattern
        return pattern.block if isinstance(pattern, BlockCausal) else 1 if isinstance(pattern, Causal) else None

    def forward(self, z: Tensor, t: Tensor, context: Context = Context()) -> Prediction:
        if context.marks is not None:
            raise ValueError(
                "the canvas has rules that nobody obeys; wrap the model: Constrained(model.process)(model)"
            )
        if self.codec is not None:
            return self._of_vectors(z, t, context)
        require_times(z, t)
        return LazyPrediction(self, z, t, context)

    def absorb(self, z: Tensor, context: Context = Context(), t: Tensor | None = None) -> Context:
        if self.block is None and (t is None or self.codec is not None):
            raise ValueError(
                "with full attention finished tokens see later ones, so no cache is exact; models of tokens have "
                "approximate ones: Blocks(…, cache=Dual())"
            )
        read = z if self.codec is None else self._read(z, torch.zeros_like(z[..., 0]), None)
        level = None if t is None else self.config.noise_level(t)
        cache = self.network.absorb(read, context, level, unfinished=t is not None)
        return replace(context, cache=cache, hint=None)

    def learnable(self, batch: Batch) -> Batch:
        """The batch without what cannot be learnt: nothing predicts the first token of a plain causal model."""
        if not self.config.continues or not bool(batch.learn[:, 0].any()):
            return batch
        return replace(batch, learn=batch.learn.index_fill(1, batch.learn.new_zeros(1, dtype=torch.int64), False))

    def encode(self, batch: Batch) -> EncodedBatch:
        """The clean x that gets noised: the tokens, or their vectors."""
        if self.codec is None:
            return EncodedBatch(batch.tokens, batch.learn, batch.pad)
        pad = batch.pad if self.codec.latents is None else None  # compressed texts have no padded latents
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.codec.frozen):
            return EncodedBatch(self.codec.encode(batch.tokens, batch.pad), self.codec.places(batch.learn), pad)

    def context(self, batch: Batch, encoded: EncodedBatch | None = None) -> Context:
        """What the network sees in training besides z: label and source, and clean earlier blocks if it has blocks."""
        encoded = encoded or self.encode(batch)
        clean = None if self.block is None else encoded.x
        context = Context(pad=encoded.pad, clean=clean, label=self._known(self._told(batch)))
        return self.with_source(context, batch.source, batch.source_pad)

    def with_source(self, context: Context, source: Tensor | None, pad: Tensor | None = None) -> Context:
        """The context with the encoder's states of a source, (B, C) ids, for cross attention; padding stays unseen."""
        if source is None:
            return context
        if self.encoder is None:
            raise ValueError("there is a source, but this model has no encoder to read it; use the framing Pairs")
        return replace(context, cond=self.encoder(source, context=Context(pad=pad)), cond_pad=pad)

    def _of_vectors(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        """The prediction, computed at once and for every position: each step of Gaussian noise needs all of x̂."""
        require_vectors(z, t)
        config = self.config
        assert isinstance(config.head, VectorHead)
        assert isinstance(config.process, Gaussian)
        if context.clean is not None:
            context = replace(context, clean=self._read(context.clean, torch.zeros_like(t), None))
        states = self.network(self._read(z, t, context.hint), config.noise_level(t), context)
        assert self.codec is not None
        return config.head(self.network.logits(states), z, t, config.process, self.codec.table)

    def _read(self, z: Tensor, t: Tensor, hint: Tensor | None) -> Tensor:
        """(B, N, D) input of the network: z at unit variance, as the codec presents it, beside the hint."""
        assert self.codec is not None
        assert isinstance(self.process, Gaussian)
        read = self.codec.show(self.process.at_unit_variance(z, t))
        if not self.config.hint:
            return read
        return torch.cat([read, torch.zeros_like(read) if hint is None else self.codec.show(hint)], -1)

    def states(self, batch: Batch) -> Tensor:
        """(B, L, D) hidden states of clean texts: what the network knows about each token."""
        if self.codec is not None:
            raise ValueError(
                f"{type(self.config.codec).__name__} makes vectors of a text; only models of tokens do this"
            )
        t = torch.zeros(len(batch.tokens), 1, device=batch.tokens.device)
        clean = None if self.block is None else batch.tokens
        return self.network(batch.tokens, self.config.noise_level(t), Context(pad=batch.pad, clean=clean))

    def error_logits(self, x: Tensor, context: Context = Context()) -> Tensor:
        """(B, L) fp32 logits that each token of a finished text is wrong: the error layer on the frozen network."""
        if self.errors is None:
            raise ValueError("this model has no layer for errors; train one: redraft train gstar_tiny --base DIRECTORY")
        t = torch.zeros(len(x), 1, device=x.device)
        with torch.no_grad():
            states = self.network(x, self.config.noise_level(t), context)
        return self.errors(states, context.pad).float()

    def attribute_logits(self, x: Tensor, context: Context = Context()) -> Tensor:
        """(B, L, V) one-hot noisy tokens → (B, classes) fp32 logits of the class of the text."""
        if self.attributes is None:
            raise ValueError("this model has no layer for attributes; train one with the objective Attribution")
        return self.attributes(x, context.pad).float()

    def attribute(self, label: int) -> Callable[[Tensor, Tensor, Context], Tensor]:
        """log p(class | noisy text), as `FirstOrderClassifier` and `TokenClassifier` take it."""
        return lambda x, t, context: self.attribute_logits(x, context).log_softmax(-1)[:, label]

    # --- text ↔ canvas: `compose` lays out the ids, the model adds what needs its weights (sources, codec) ---

    def canvas(
        self, prompt: str | Sequence[str] = "", *, new: int, rows: int = 1, source: str | Sequence[str] | None = None
    ) -> Canvas:
        """A canvas with a prompt in each row, followed by tokens to write.

        Args:
            prompt: the text each row starts with: one for `rows` rows, or a list with one per row
            new: number of tokens to write after the prompt; for insertion models the maximum
            rows: how many rows share a single prompt; ignored for a list of prompts
            source: the text to answer, for models trained on pairs: one for all rows, or a list with one per row
        """
        prompts = [prompt] * rows if isinstance(prompt, str) else list(prompt)
        sources = [source] * len(prompts) if isinstance(source, str) else source
        return self.compose([[p, make_hole(self.process, new)] for p in prompts], sources)

    def chat(self, messages: Sequence[Mapping[str, str]], *, new: int, rows: int = 1, **options: object) -> Canvas:
        """A canvas with a conversation in each row, followed by tokens for the answer.

        messages: each {"role": "user", "content": "…"}; the chat template of the tokenizer makes a prompt of them.
        new: number of tokens to write.
        rows: number of rows, all alike.
        options: further variables of the template, such as enable_thinking=False.
        """
        if not isinstance(self.tokenizer, HubTokenizer):
            raise ValueError("this model has no tokenizer with a chat template; give a prompt instead of messages")
        ids = prompt_ids(self.tokenizer, messages, **options)
        device = self.network.embedding.weight.device
        z = torch.tensor([[*ids, *[self.config.vocab.masked] * new]] * rows, device=device)
        return self.to_vectors(Canvas(z, torch.arange(z.shape[1], device=device).expand_as(z) < len(ids)))

    def infill(self, template: str | Sequence[str], rows: int = 1, room: int = 32) -> Canvas:
        """A canvas from text with holes: "She opened the [[6]] and [[3]]." has one of six tokens and one of three.

        Args:
            template: text with holes [[n]] of n tokens: one for `rows` rows, or a list with one per row.
                Insertion models also fill holes of any length: "She opened the [[*]] and left."
            rows: how many rows share a single template; ignored for a list of templates
            room: maximum number of tokens in each [[*]]
        """
        templates = [template] * rows if isinstance(template, str) else list(template)
        return self.compose([_parse_template(t, room) for t in templates])

    def compose(self, rows: Sequence[Sequence[TemplatePiece]], sources: Sequence[_TextOrIds] | None = None) -> Canvas:
        """A canvas from rows of given texts and holes; shorter rows are padded.

        Args:
            rows: each a list of texts (str) or their ids (tuple), holes of exactly n tokens (int) and of any length
                (UpTo); a row that begins with ids gets no start token besides
            sources: the text each row answers; the encoder reads it, and without an encoder it is placed at the
                beginning of the row, before the start token
        """
        _require_rows(rows, sources)
        composer, device = self._composer, self.network.embedding.weight.device
        if sources is None or self.encoder is None:
            return self.to_vectors(composer.canvas(rows, sources, device))
        canvas = composer.canvas(rows, None, device)
        with torch.no_grad():
            context = self.with_source(canvas.context, *composer.sources(sources, device))
        return self.to_vectors(replace(canvas, context=context))

    @property
    def _composer(self) -> _CanvasBuilder:
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; make a Canvas of ids, or give DiffusionLM a tokenizer")
        return _CanvasBuilder(self.process, self.tokenizer, self.config.network.positions)

    def blank(self, batch: Batch) -> Canvas:
        """A canvas on which every learned token of a batch is to be written anew; prompts and sources stay given."""
        with torch.no_grad():
            given = Context(pad=batch.pad, label=self._known(self._told(batch)))
            z = batch.tokens.masked_fill(batch.learn, self.config.vocab.mask or 0)
            canvas = Canvas(z, ~batch.learn, self.with_source(given, batch.source, batch.source_pad))
            return self.to_vectors(canvas)

    def labelled(self, canvas: Canvas, label: int | Sequence[int]) -> Canvas:
        """The canvas, to be filled with texts of these classes: one for each row, or one for all."""
        labels = [label] * len(canvas.z) if isinstance(label, int) else list(label)
        if len(labels) != len(canvas.z):
            raise ValueError(f"{len(labels)} labels for {len(canvas.z)} rows; give one for each, or one for all")
        known = self._known(torch.tensor(labels, device=canvas.z.device))
        return replace(canvas, context=replace(canvas.context, label=known))

    def _told(self, batch: Batch) -> Tensor | None:
        """The classes that the network sees: not those that are there for the attribute layer alone."""
        return None if self.config.attributes and self.config.network.classes is None else batch.label

    def _known(self, label: Tensor | None) -> Tensor | None:
        return _require_labels(label, self.config.network.classes or 0)

    def to_vectors(self, canvas: Canvas) -> Canvas:
        """A canvas of tokens as one of vectors, if the process noises vectors; the inverse of `to_tokens`."""
        if self.codec is None:
            return canvas
        if self.codec.latents is not None and bool(_prompt_mask(canvas, self.config.vocab).any()):
            name = type(self.codec).__name__
            raise ValueError(f"{name} writes whole texts, with no place for given tokens; leave out prompt and holes")
        if (marks := canvas.context.marks) is not None:
            if not self.codec.parallel:
                raise ValueError(f"{type(self.codec).__name__} decodes one token after another: it cannot obey rules")
            canvas = replace(canvas, context=replace(canvas.context, marks=marks.reading(self.codec.logits)))
        if self.codec.latents is None:
            given = canvas.z.masked_fill(~canvas.fixed, -1)
            with torch.no_grad():
                return replace(canvas, z=self.codec.encode(canvas.z, canvas.context.pad), ids=given)
        z = torch.zeros(len(canvas.z), self.codec.latents, self.codec.width, device=canvas.z.device)
        return Canvas(z, torch.zeros_like(z[..., 0], dtype=torch.bool), replace(canvas.context, pad=None, inside=None))

    def to_tokens(self, canvas: Canvas) -> Canvas:
        """The canvas with its vectors decoded to tokens, which obey its rules; one of tokens comes back unchanged."""
        if self.codec is None:
            return canvas
        marks = canvas.context.marks
        with torch.no_grad():
            ids = self.codec.decode(canvas.z) if marks is None else marks.likeliest(canvas.z)
        if self.codec.latents is None:
            known = canvas.ids
            return replace(canvas, z=ids if known is None else torch.where(known < 0, ids, known), ids=None)
        return Canvas(ids, torch.zeros_like(ids, dtype=torch.bool))

    def text(self, canvas: Canvas) -> list[str]:
        """The text of each row, up to its end token."""
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; read canvas.z instead")
        canvas = self.to_tokens(canvas) if canvas.z.dim() == 3 else canvas
        places = (text_positions(canvas, self.config.vocab, row) for row in range(len(canvas.z)))
        return [self.tokenizer.decode(z[at].tolist()) for z, at in zip(canvas.z, places, strict=True)]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Dropout and the like are off inside; afterwards every module is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def inference(model: DiffusionLM) -> Iterator[torch.device]:
    """The model's device; eval mode and no gradients inside."""
    with eval_mode(model), torch.no_grad():
        yield next(model.parameters()).device
