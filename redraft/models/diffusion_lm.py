"""`DiffusionLM`: process, network, head, codec and tokenizer in one module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from redraft.core.batch import Batch, CleanBatch
from redraft.core.canvas import Canvas, Context
from redraft.core.condition import Condition
from redraft.core.prediction import VectorPrediction
from redraft.core.processes.base import Process, require_times, require_vectors
from redraft.core.text.tokenizers import Tokenizer
from redraft.models.canvas_builder import (
    TemplatePiece,
    _CanvasBuilder,
    _parse_template,
    _prompt_mask,
    _require_labels,
    _require_rows,
    _row_labels,
    _TextOrIds,
    make_hole,
    text_positions,
)
from redraft.models.config import DiffusionLMConfig
from redraft.models.lazy_prediction import LazyPrediction
from redraft.models.networks.executors.base import Executor
from redraft.models.networks.linear import lora_layers
from redraft.models.networks.transformer import Transformer
from redraft.models.parts.base import Part
from redraft.models.parts.source_encoder import SourceEncoder

_P = TypeVar("_P", bound=Part)


class DiffusionLM(nn.Module):
    """A diffusion language model: it predicts the clean sequence from a noisy one. Checkpoints store its weights.

    DDP and FSDP2 must wrap `TrainStep`, which queries the predictions, and not the model alone: `predict` itself does
    not run the network.
    """

    def __init__(self, config: DiffusionLMConfig, tokenizer: Tokenizer | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.assumed: tuple[str, ...] = ()  # for an imported model: assumptions about what its files do not say
        self.network = Transformer(config.network, config.io)
        self.codec = None if config.codec is None else config.codec.build(config.vocab)
        self.parts = nn.ModuleDict({part.name: part.build(config) for part in config.parts})
        for layer in lora_layers(self.network) if any(part.owns_adapter for part in config.parts) else ():
            layer.on = False  # the part switches it on

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
        return self.config.network.pattern.block

    def predict(self, z: Tensor, t: Tensor, context: Context = Context()) -> LazyPrediction | VectorPrediction:
        """Return the prediction of the clean text: for tokens a lazy one, whose queries run the network.

        For vectors the network runs at once, because a step of Gaussian noise needs all of x̂.
        """
        if context.constraints.rules is not None:
            raise ValueError(
                "the canvas has constraints, but the model is not wrapped; use Constrained(model.process)(model)"
            )
        if self.codec is not None:
            return self._predict_vectors(z, t, context)
        require_times(z, t)
        return LazyPrediction(self, z, t, context)

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

    def read(self, batch: Batch) -> CleanBatch:
        """Return the clean input of the noise, vectors if the model has a codec, and the context of a training step."""
        clean = self._encoded(batch)
        context = Context(
            pad=clean.pad,
            clean=None if self.block is None else clean.x,
            condition=self._encoded_condition(batch.condition),
        )
        return clean._replace(context=context)

    def _encoded(self, batch: Batch) -> CleanBatch:
        if self.codec is None:
            return CleanBatch(batch.tokens, batch.learn, batch.pad)
        pad = batch.pad if self.codec.latents is None else None  # compressed texts have no padded latents
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.codec.frozen):
            return CleanBatch(self.codec.encode(batch.tokens, batch.pad), self.codec.position_mask(batch.learn), pad)

    def _encoded_condition(self, given: Condition) -> Condition:
        """The condition as the network sees it: states of the source, and no label that is only for a part."""
        classes = self.config.network.classes
        only_for_part = classes is None and any(part.label_count for part in self.config.parts)
        label = None if only_for_part else _require_labels(given.label, classes or 0)
        if given.source is None:
            return replace(given, label=label)
        return replace(given, label=label, source=self.part(SourceEncoder)(given.source, given.source_pad))

    def _predict_vectors(self, z: Tensor, t: Tensor, context: Context) -> VectorPrediction:
        require_vectors(z, t)
        config = self.config
        if context.clean is not None:
            context = replace(context, clean=self._network_input(context.clean, torch.zeros_like(t), None))
        states = self.network(self._network_input(z, t, context.previous), config.noise_level(t), context)
        assert self.codec is not None
        return config.vector_head(self.network.logits(states), z, t, config.gaussian, self.codec.table)

    def _network_input(self, z: Tensor, t: Tensor, previous: Tensor | None) -> Tensor:
        """(B, N, D) the network's input: z at unit variance, followed by the previous x̂ if it self-conditions."""
        assert self.codec is not None
        inputs = self.codec.network_input(self.config.gaussian.at_unit_variance(z, t))
        if not self.config.self_conditioning:
            return inputs
        return torch.cat(
            [inputs, torch.zeros_like(inputs) if previous is None else self.codec.network_input(previous)], -1
        )

    def part(self, kind: type[_P]) -> _P:
        """Return the part of this kind, such as `ErrorHead`; raises if the model has none."""
        for part in self.parts.values():
            if isinstance(part, kind):
                return part
        raise ValueError(kind.missing)

    # --- text ↔ canvas: a `_CanvasBuilder` lays out the ids; the model encodes sources and vectors ---

    def canvas(
        self,
        prompt: str | Sequence[str] = "",
        *,
        new: int,
        rows: int = 1,
        source: str | Sequence[str] | None = None,
        label: int | Sequence[int] | None = None,
    ) -> Canvas:
        """A canvas with a prompt in each row, followed by tokens to write.

        Args:
            prompt: text at the beginning of each row: one for `rows` rows, or a list with one per row
            new: number of tokens to write after the prompt; for insertion models, the maximum
            rows: number of rows that share a single prompt; ignored for a list of prompts
            source: text to answer, for models trained on pairs: one for all rows, or a list with one per row
            label: class of the text, for models trained with classes: one for all rows, or a list with one per row
        """
        prompts = [prompt] * rows if isinstance(prompt, str) else list(prompt)
        sources = [source] * len(prompts) if isinstance(source, str) else source
        return self.compose([[p, make_hole(self.process, new)] for p in prompts], sources, label)

    def compose(
        self,
        rows: Sequence[str | Sequence[TemplatePiece]],
        sources: Sequence[_TextOrIds] | None = None,
        label: int | Sequence[int] | None = None,
        *,
        room: int = 32,
    ) -> Canvas:
        """A canvas from rows of given texts and holes; shorter rows are padded.

        Args:
            rows: each a template or a list of pieces. The template "She opened the [[6]] and [[3]]." has a hole of six
                tokens and one of three; insertion models also fill holes of any length, [[*]]. The pieces are texts
                (str) or their ids (tuple), holes of exactly n tokens (int) and holes of any length (`VariableHole`); a
                row that begins with ids gets no start token
            sources: text that each row answers; an encoder reads it, and without an encoder it is placed at the
                beginning of the row, before the start token
            label: class of each row's text, or one for all rows
            room: maximum number of tokens in each [[*]]
        """
        pieces = [_parse_template(row, room) if isinstance(row, str) else row for row in rows]
        _require_rows(pieces, sources)
        builder, device, encodes = self._canvas_builder, self.network.embedding.weight.device, "encoder" in self.parts
        canvas = builder.canvas(pieces, None if encodes else sources, device)
        given = Condition(label=_row_labels(label, canvas.z, self.config.network.classes or 0))
        if sources is not None and encodes:
            source, pad = builder.sources(sources, device)
            given = replace(given, source=source, source_pad=pad)
        with torch.no_grad():
            context = replace(canvas.context, condition=self._encoded_condition(given))
        return self.to_vectors(replace(canvas, context=context))

    @property
    def _canvas_builder(self) -> _CanvasBuilder:
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; make a Canvas of ids, or give DiffusionLM a tokenizer")
        return _CanvasBuilder(self.process, self.tokenizer, self.config.network.positions)

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
        """Decode the vectors of a canvas to tokens that satisfy its constraints; a canvas of tokens is unchanged."""
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
    training = [module for module in _modules(model) if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _modules(module: nn.Module) -> Iterator[nn.Module]:
    """A module and all inside it. `nn.Module.modules`, which also makes names, takes as long as a small network."""
    yield module
    for child in module._modules.values():
        if child is not None:
            yield from _modules(child)


@contextmanager
def inference(model: DiffusionLM) -> Iterator[torch.device]:
    """Put a model into eval mode without gradients inside the context, which yields the model's device."""
    with eval_mode(model), torch.no_grad():
        yield next(model.parameters()).device
