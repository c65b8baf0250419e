"""From a causal model to one that fills masks: the run that adapts it, and the model with its adapter merged."""

from __future__ import annotations

from dataclasses import replace

import torch

from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.picks.order import Confidence
from redraft.decoding.samplers.unmask import Unmask
from redraft.models.config import DiffusionLMConfig
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.heads import Shift
from redraft.models.networks.attention import BlockCausal, Causal, Full
from redraft.models.networks.config import LoraConfig, TransformerConfig
from redraft.models.networks.linear import LoraEmbedding, LoraLinear, lora_layers
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
    """The run that adapts a causal model: the same weights, a row for the mask, the shift kept, attention opened.

    Args:
        base: a plain causal model (Llama, GPT-2 …), read from `path`, or one with an adapter, which learns on
        path: where the weights to begin with are
        data: what to learn from
        framing: how texts become rows
        lora: rank of an adapter; None: all weights learn
        block: tokens that see each other, and all earlier blocks, as in block diffusion; None: all see all
        objective: annealing, the causal loss, alignment
        steps: of the training
        batch: rows of a step
        lr: learning rate, after a tenth of the steps of warm-up
        seed: of the noise and of the order of the rows
    """
    tokenizer = _require_causal(base, path)
    adapter = None if lora is None else LoraConfig(lora, 2.0 * lora, mask_row=True)
    pattern = Full() if block is None else BlockCausal(block)
    network = replace(base.config.network, pattern=pattern, lora=adapter)
    if base.config.network.lora is not None:
        network = _goes_on(base.config.network, network, path)
    head = base.config.head
    if block is not None and isinstance(head, Shift):
        head = replace(head, finished=True)
    model = replace(base.config, network=network, head=head)
    sampler = Blocks(Unmask(32, Confidence()), decode_block=block or 32, stop=True)
    optimiser = OptimizerConfig(lr=lr, warmup=steps // 10, floor=0.1, ema=0.0)
    return Run(
        model, data, tokenizer, framing, objective, sampler, optimiser, steps, batch, seed=seed, base=path, samples=1
    )


def _goes_on(had: TransformerConfig, asked: TransformerConfig, path: str) -> TransformerConfig:
    """The network of a model that has an adapter already, which learns on; another one cannot be asked for."""
    if asked.pattern != had.pattern or (asked.lora is not None and asked.lora != had.lora):
        raise ValueError(
            f"{path} has an adapter already ({had.lora}, {had.pattern}), which learns on: same --lora and --block"
        )
    return had


def _require_causal(base: DiffusionLM, path: str) -> Tokenizer:
    learns_on = isinstance(base.config.head, Shift) and base.config.network.lora is not None
    if not base.config.continues and not learns_on:
        kind = "it has a start token" if isinstance(base.config.network.pattern, Causal) else "it fills masks already"
        raise ValueError(f"{path} cannot be adapted: {kind}; give a plain causal model, such as a Llama or GPT-2")
    if base.tokenizer is None:
        raise ValueError(f"{path} has no tokenizer; put its tokenizer.json there")
    return base.tokenizer


@torch.no_grad()
def merge_adapter(model: DiffusionLM) -> DiffusionLM:
    """The model with its adapter added to its weights, for export; one without an adapter comes back as it is.

    An adapter that only drafts for the model is left out: the model is the one without it.
    """
    if not lora_layers(model):
        return model
    drafts = model.config.drafter is not None
    config: DiffusionLMConfig = replace(model.config, network=replace(model.config.network, lora=None), drafter=None)
    found = DiffusionLM(config, model.tokenizer)
    sums = {
        f"{n}.weight": layer.merged()
        for n, layer in model.named_modules()
        if isinstance(layer, LoraLinear | LoraEmbedding) and not drafts
    }
    old = dict(model.named_parameters())
    for name, p in found.named_parameters():
        p.copy_(sums.get(name, old[name]))
    return found.eval()
