"""`DiffusionLM`: process, network, head, codec and tokenizer in one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from redraft.core.batch import Batch, EncodedBatch
from redraft.core.canvas import Canvas, Context
from redraft.core.condition import Condition
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
from redraft.models.lazy_prediction import _LazyPrediction
from redraft.models.networks.executors.base import Executor
from redraft.models.networks.patterns import BlockCausal, Causal
from redraft.models.networks.transformer import Transformer


class DiffusionLM(nn.Module):
    """A diffusion language model: it predicts the clean sequence from a noisy one. Checkpoints store its weights.

    The network runs only when the prediction is queried, for the rows and positions of the query. DDP and FSDP2 must
    therefore wrap `TrainStep`, which makes the queries, and not the model alone.
    """

    def __init__(self, config: DiffusionLMConfig, tokenizer: Tokenizer | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.assumed: tuple[str, ...] = ()  # for an imported model: assumptions about what its files do not say
        self.network = Transformer(config.network, config.io)
        self.errors = ErrorHead(config.network) if config.error_head else None
        self.attributes = (
            AttributeClassifier(config.network, config.vocab.size, config.attribute_classes)
            if config.attribute_classes
            else None
        )
        self.codec = None if config.codec is None else config.codec.build(config.vocab)
        self.tagger = config.build_tagger()
        self.drafter = config.build_drafter(self.network)
        self.encoder = None if config.encoder is None else Transformer(config.encoder, config.source_io)

    @property
    def process(self) -> Process:
        return self.config.process

    def on(self, executor: Executor) -> DiffusionLM:
        """The same model, whose network another executor runs."""
        twin = copy(self)
        twin._modules = self._modules | {"network": self.network.on(executor)}
        return twin

    @property
    def block(self) -> int | None:
        """Number of tokens that are written at a time: the block size of the pattern, 1 if causal, None for all."""
        pattern = self.config.network.pattern
        return pattern.block if isinstance(pattern, BlockCausal) else 1 if isinstance(pattern, Causal) else None

    def forward(self, z: Tensor, t: Tensor, context: Context = Context()) -> Prediction:
        if context.constraints.rules is not None:
            raise ValueError(
                "the canvas has constraints, but the model is not wrapped; use Constrained(model.process)(model)"
            )
        if self.codec is not None:
            return self._predict_vectors(z, t, context)
        require_times(z, t)
        return _LazyPrediction(self, z, t, context)

    def absorb(self, z: Tensor, context: Context = Context(), t: Tensor | None = None) -> Context:
        """Return the context with z added to the cache.

        t: times of the tokens, for an approximate cache of unfinished tokens; None if they are finished.
        """
        if self.block is None and (t is None or self.codec is not None):
            raise ValueError(
                "with full attention, finished tokens attend to later ones, so no cache is exact; for models of tokens "
                "there are approximate caches: Blocks(…, cache=DualCache())"
            )
        inputs = z if self.codec is None else self._network_input(z, torch.zeros_like(z[..., 0]), None)
        level = None if t is None else self.config.noise_level(t)
        cache = self.network.absorb(inputs, context, level, unfinished=t is not None)
        return replace(context, cache=cache, previous=None)

    def learnable(self, batch: Batch) -> Batch:
        """The batch without loss on the first token if nothing predicts it, as in plain causal models."""
        if not self.config.is_plain_causal or not bool(batch.learn[:, 0].any()):
            return batch
        return replace(batch, learn=batch.learn.index_fill(1, batch.learn.new_zeros(1, dtype=torch.int64), False))

    def encode(self, batch: Batch) -> EncodedBatch:
        """Encode the tokens as vectors if the model has a codec; the result is what gets noised."""
        if self.codec is None:
            return EncodedBatch(batch.tokens, batch.learn, batch.pad)
        pad = batch.pad if self.codec.latents is None else None  # compressed texts have no padded latents
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.codec.frozen):
            return EncodedBatch(self.codec.encode(batch.tokens, batch.pad), self.codec.position_mask(batch.learn), pad)

    def context(self, batch: Batch, encoded: EncodedBatch | None = None) -> Context:
        """The context of a training step: padding, label, source, and clean tokens for causal and block patterns."""
        encoded = encoded or self.encode(batch)
        clean = None if self.block is None else encoded.x
        label = self._require_labels(self._network_label(batch))
        context = Context(pad=encoded.pad, clean=clean, condition=Condition(label=label))
        return self.with_source(context, batch.condition.source, batch.condition.source_pad)

    def with_source(self, context: Context, source: Tensor | None, pad: Tensor | None = None) -> Context:
        """Encode a source, (B, C) ids with padding, and return the context with its states for cross attention."""
        if source is None:
            return context
        if self.encoder is None:
            raise ValueError("this model has no encoder to read a source; use the framing Pairs")
        return context.with_condition(source=self.encoder(source, context=Context(pad=pad)), source_pad=pad)

    def _predict_vectors(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        """The prediction, computed at once and for all positions, because a step of Gaussian noise needs all of x̂."""
        require_vectors(z, t)
        config = self.config
        assert isinstance(config.head, VectorHead)
        assert isinstance(config.process, Gaussian)
        if context.clean is not None:
            context = replace(context, clean=self._network_input(context.clean, torch.zeros_like(t), None))
        states = self.network(self._network_input(z, t, context.previous), config.noise_level(t), context)
        assert self.codec is not None
        return config.head(self.network.logits(states), z, t, config.process, self.codec.table)

    def _network_input(self, z: Tensor, t: Tensor, previous: Tensor | None) -> Tensor:
        """(B, N, D) the network's input: z at unit variance, followed by the previous x̂ if it self-conditions."""
        assert self.codec is not None
        assert isinstance(self.process, Gaussian)
        inputs = self.codec.network_input(self.process.at_unit_variance(z, t))
        if not self.config.self_conditioning:
            return inputs
        return torch.cat(
            [inputs, torch.zeros_like(inputs) if previous is None else self.codec.network_input(previous)], -1
        )

    def states(self, batch: Batch) -> Tensor:
        """(B, L, D) hidden states of clean texts."""
        if self.codec is not None:
            raise ValueError(
                f"this model has a codec, {type(self.config.codec).__name__}, and no states for tokens; use a model of "
                "tokens"
            )
        t = torch.zeros(len(batch.tokens), 1, device=batch.tokens.device)
        clean = None if self.block is None else batch.tokens
        return self.network(batch.tokens, self.config.noise_level(t), Context(pad=batch.pad, clean=clean))

    def error_logits(self, x: Tensor, context: Context = Context()) -> Tensor:
        """(B, L) fp32 logits that each token of a finished text is wrong, from the error head on the frozen network."""
        if self.errors is None:
            raise ValueError("this model has no error head; train one: redraft train gstar_tiny --base DIRECTORY")
        t = torch.zeros(len(x), 1, device=x.device)
        with torch.no_grad():
            states = self.network(x, self.config.noise_level(t), context)
        return self.errors(states, context.pad).float()

    def attribute_logits(self, x: Tensor, context: Context = Context()) -> Tensor:
        """(B, L, V) one-hot noisy tokens → (B, classes) fp32 logits of the class of the text."""
        if self.attributes is None:
            raise ValueError("this model has no attribute classifier; train one with AttributeObjective")
        return self.attributes(x, context.pad).float()

    def attribute(self, label: int) -> Callable[[Tensor, Tensor, Context], Tensor]:
        """log p(class | noisy text) as a function, for `FirstOrderClassifier` and `TokenClassifier`."""
        return lambda x, t, context: self.attribute_logits(x, context).log_softmax(-1)[:, label]

    # --- text ↔ canvas: a `_CanvasBuilder` lays out the ids; the model encodes sources and vectors ---

    def canvas(
        self, prompt: str | Sequence[str] = "", *, new: int, rows: int = 1, source: str | Sequence[str] | None = None
    ) -> Canvas:
        """A canvas with a prompt in each row, followed by tokens to write.

        Args:
            prompt: text at the beginning of each row: one for `rows` rows, or a list with one per row
            new: number of tokens to write after the prompt; for insertion models, the maximum
            rows: number of rows that share a single prompt; ignored for a list of prompts
            source: text to answer, for models trained on pairs: one for all rows, or a list with one per row
        """
        prompts = [prompt] * rows if isinstance(prompt, str) else list(prompt)
        sources = [source] * len(prompts) if isinstance(source, str) else source
        return self.compose([[p, make_hole(self.process, new)] for p in prompts], sources)

    def chat(self, messages: Sequence[Mapping[str, str]], *, new: int, rows: int = 1, **options: object) -> Canvas:
        """A canvas with a conversation in each row, followed by tokens for the answer.

        Args:
            messages: the conversation, each {"role": "user", "content": "…"}; the tokenizer's chat template is applied
            new: number of tokens to write
            rows: number of identical rows
            options: further variables of the template, such as enable_thinking=False
        """
        if not isinstance(self.tokenizer, HubTokenizer):
            raise ValueError("this model has no tokenizer with a chat template; give a prompt instead of messages")
        ids = prompt_ids(self.tokenizer, messages, **options)
        device = self.network.embedding.weight.device
        z = torch.tensor([[*ids, *[self.config.vocab.masked] * new]] * rows, device=device)
        return self.to_vectors(Canvas(z, torch.arange(z.shape[1], device=device).expand_as(z) < len(ids)))

    def infill(self, template: str | Sequence[str], rows: int = 1, room: int = 32) -> Canvas:
        """A canvas from text with holes: "She opened the [[6]] and [[3]]." has a hole of six tokens and one of three.

        Args:
            template: text with holes [[n]] of n tokens: one for `rows` rows, or a list with one per row.
                Insertion models also fill holes of any length: "She opened the [[*]] and left."
            rows: number of rows that share a single template; ignored for a list of templates
            room: maximum number of tokens in each [[*]]
        """
        templates = [template] * rows if isinstance(template, str) else list(template)
        return self.compose([_parse_template(t, room) for t in templates])

    def compose(self, rows: Sequence[Sequence[TemplatePiece]], sources: Sequence[_TextOrIds] | None = None) -> Canvas:
        """A canvas from rows of given texts and holes; shorter rows are padded.

        Args:
            rows: each a list of texts (str) or their ids (tuple), holes of exactly n tokens (int) and holes of any
                length (`VariableHole`); a row that begins with ids gets no start token
            sources: text that each row answers; an encoder reads it, and without an encoder it is placed at the
                beginning of the row, before the start token
        """
        _require_rows(rows, sources)
        builder, device = self._canvas_builder, self.network.embedding.weight.device
        if sources is None or self.encoder is None:
            return self.to_vectors(builder.canvas(rows, sources, device))
        canvas = builder.canvas(rows, None, device)
        with torch.no_grad():
            context = self.with_source(canvas.context, *builder.sources(sources, device))
        return self.to_vectors(replace(canvas, context=context))

    @property
    def _canvas_builder(self) -> _CanvasBuilder:
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; make a Canvas of ids, or give DiffusionLM a tokenizer")
        return _CanvasBuilder(self.process, self.tokenizer, self.config.network.positions)

    def blank(self, batch: Batch) -> Canvas:
        """A canvas on which the learned tokens of a batch are to be written; prompts and sources are given."""
        with torch.no_grad():
            label, given = self._require_labels(self._network_label(batch)), batch.condition
            z = batch.tokens.masked_fill(batch.learn, self.config.vocab.mask or 0)
            context = Context(pad=batch.pad, condition=Condition(label=label))
            context = self.with_source(context, given.source, given.source_pad)
            return self.to_vectors(Canvas(z, ~batch.learn, context))

    def with_labels(self, canvas: Canvas, label: int | Sequence[int]) -> Canvas:
        """The canvas with class labels, so that texts of these classes are written: one per row, or one for all."""
        labels = [label] * len(canvas.z) if isinstance(label, int) else list(label)
        if len(labels) != len(canvas.z):
            raise ValueError(f"{len(labels)} labels for {len(canvas.z)} rows; give one per row, or one for all")
        label_ids = self._require_labels(torch.tensor(labels, device=canvas.z.device))
        return replace(canvas, context=canvas.context.with_condition(label=label_ids))

    def _network_label(self, batch: Batch) -> Tensor | None:
        """The labels that the network sees; None if they are only for the attribute classifier."""
        return None if self.config.attribute_classes and self.config.network.classes is None else batch.condition.label

    def _require_labels(self, label: Tensor | None) -> Tensor | None:
        return _require_labels(label, self.config.network.classes or 0)

    def to_vectors(self, canvas: Canvas) -> Canvas:
        """Encode a canvas of tokens, if the model noises vectors; the inverse of `to_tokens`."""
        if self.codec is None:
            return canvas
        if self.codec.latents is not None and bool(_prompt_mask(canvas, self.config.vocab).any()):
            name = type(self.codec).__name__
            raise ValueError(f"{name} writes only whole texts, without given tokens; leave out the prompt and holes")
        if (rules := canvas.context.constraints.rules) is not None:
            if not self.codec.parallel:
                raise ValueError(
                    f"{type(self.codec).__name__} has no logits for each position, because it decodes one token after "
                    "another; leave out the constraints"
                )
            canvas = canvas.with_constraints(rules=rules.reading(self.codec.logits))
        if self.codec.latents is None:
            given = canvas.z.masked_fill(~canvas.fixed, -1)
            with torch.no_grad():
                return replace(canvas, z=self.codec.encode(canvas.z, canvas.context.pad), ids=given)
        z = torch.zeros(len(canvas.z), self.codec.latents, self.codec.width, device=canvas.z.device)
        context = replace(canvas.context, pad=None).with_constraints(no_end_token=None)
        return Canvas(z, torch.zeros_like(z[..., 0], dtype=torch.bool), context)

    def to_tokens(self, canvas: Canvas) -> Canvas:
        """Decode the vectors of a canvas to tokens, which obey its constraints; a canvas of tokens is unchanged."""
        if self.codec is None:
            return canvas
        rules = canvas.context.constraints.rules
        with torch.no_grad():
            ids = self.codec.decode(canvas.z) if rules is None else rules.likeliest(canvas.z)
        if self.codec.latents is None:
            given = canvas.ids
            return replace(canvas, z=ids if given is None else torch.where(given < 0, ids, given), ids=None)
        return Canvas(ids, torch.zeros_like(ids, dtype=torch.bool))

    def text(self, canvas: Canvas) -> list[str]:
        """The text of each row, up to its end token."""
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; read canvas.z instead")
        canvas = self.to_tokens(canvas) if canvas.z.dim() == 3 else canvas
        columns = (text_positions(canvas, self.config.vocab, row) for row in range(len(canvas.z)))
        return [self.tokenizer.decode(z[index].tolist()) for z, index in zip(canvas.z, columns, strict=True)]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode inside the context; afterwards restore the mode of each module."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def inference(model: DiffusionLM) -> Iterator[torch.device]:
    """Put a model into eval mode without gradients inside the context, which yields the model's device."""
    with eval_mode(model), torch.no_grad():
        yield next(model.parameters()).device
