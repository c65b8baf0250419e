"""Adapting a causal model to masked diffusion: the training run, and merging the adapter into the weights."""

from __future__ import annotations

from dataclasses import replace

import torch

from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.picks.order import AnyOrder, Confidence
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.unmask import Unmask
from redraft.models.config import DiffusionLMConfig
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.heads import Shift
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.linear import LoraConfig, LoraEmbedding, LoraLinear, lora_layers
from redraft.models.networks.patterns import AttentionPattern, BlockCausal, Full, FullAfterStart
from redraft.training.data.framing import Framing
from redraft.training.data.sources import Corpus, InfiniteCorpus
from redraft.training.objectives.adaptation import AdaptationObjective
from redraft.training.runs.run import OptimizerConfig, Run


def adaptation_run(
    base: DiffusionLM,
    path: str,
    data: Corpus | InfiniteCorpus,
    framing: Framing,
    *,
    lora: int | None = None,
    block: int | None = None,
    objective: AdaptationObjective = AdaptationObjective(),
    steps: int = 1000,
    batch: int = 8,
    lr: float = 1e-4,
    seed: int = 0,
) -> Run:
    """Returns a run that adapts a causal model: it keeps weights and shift, adds a mask row, and opens the attention.

    Args:
        base: a causal model, loaded from `path`: a plain one (Llama, GPT-2 …), one with a start token as the presets
            train them, or one with an adapter to train further
        path: directory of the initial weights
        data: the training corpus
        framing: how texts become rows
        lora: rank of an adapter; None to train all weights
        block: block size of block-causal attention, as in block diffusion; None for full attention
        objective: annealing, the causal loss, alignment
        steps: training steps
        batch: rows per step
        lr: learning rate, with warm-up over the first tenth of the steps
        seed: seed of the noise and of the row order
    """
    tokenizer = _require_causal(base, path)
    adapter = None if lora is None else LoraConfig(lora, 2.0 * lora, mask_row=True)
    pattern = _opened_attention(base, path, block)
    network = replace(base.config.network, pattern=pattern, lora=adapter)
    if base.config.network.lora is not None:
        network = _keep_adapter(base.config.network, network, path)
    head = base.config.head
    if block is not None and isinstance(head, Shift):
        head = replace(head, finished=True)
    model = replace(base.config, network=network, head=head)
    sampler: Sampler = Blocks(Unmask(32, Confidence()), decode_block=block or 32, stop=True)
    if pattern.columns_before:
        sampler = Unmask(framing.length, AnyOrder())  # whole rows
    optimizer = OptimizerConfig(lr=lr, warmup=steps // 10, floor=0.1, ema=0.0)
    return Run(
        model, data, tokenizer, framing, objective, sampler, optimizer, steps, batch, seed=seed, base=path, samples=1
    )


def _opened_attention(base: DiffusionLM, path: str, block: int | None) -> AttentionPattern:
    """Full or block-causal attention; with the start token if the model has one."""
    if not base.config.has_start_token and not base.config.network.pattern.columns_before:
        return Full() if block is None else BlockCausal(block)
    if block is not None:
        raise ValueError(f"block={block}: {path} has a start token, which blocks do not read; leave block out")
    return FullAfterStart()


def _keep_adapter(current: TransformerConfig, requested: TransformerConfig, path: str) -> TransformerConfig:
    """The network of a model with an adapter, to be trained further; raises if another adapter is requested."""
    if requested.pattern != current.pattern or (requested.lora is not None and requested.lora != current.lora):
        raise ValueError(
            f"{path} already has an adapter ({current.lora}, {current.pattern}), which is trained further: "
            "give the same --lora and --block"
        )
    return current


def _require_causal(base: DiffusionLM, path: str) -> Tokenizer:
    pattern = base.config.network.pattern
    shifted = base.config.head.shifts or pattern.columns_before == 1
    if not pattern.causal and not (shifted and base.config.network.lora is not None):
        raise ValueError(f"{path} cannot be adapted: it already fills masks; give a causal model")
    if base.tokenizer is None:
        raise ValueError(f"{path} has no tokenizer; put its tokenizer.json there")
    return base.tokenizer


@torch.no_grad()
def merge_adapter(model: DiffusionLM) -> DiffusionLM:
    """Adds the adapter to the weights of a copy, for export; returns a model without an adapter unchanged.

    The adapter of a self-drafter is dropped, since it only serves drafting.
    """
    if not lora_layers(model):
        return model
    parts = tuple(part for part in model.config.parts if not part.owns_adapter)
    drafts = parts != model.config.parts
    config: DiffusionLMConfig = replace(model.config, network=replace(model.config.network, lora=None), parts=parts)
    result = DiffusionLM(config, model.tokenizer)
    merged = {
        f"{n}.weight": layer.merged()
        for n, layer in model.named_modules()
        if isinstance(layer, LoraLinear | LoraEmbedding) and not drafts
    }
    old = dict(model.named_parameters())
    for name, p in result.named_parameters():
        p.copy_(merged.get(name, old[name]))
    return result.eval()
