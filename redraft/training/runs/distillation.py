"""The run that trains a drafter for a causal model, distilled from the model's own distributions."""

from __future__ import annotations

from dataclasses import replace

from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.networks.linear import LoraConfig
from redraft.models.parts.drafter import DraftConfig
from redraft.models.parts.side_drafter import SideDrafter
from redraft.training.data.framing import Framing
from redraft.training.data.sources import Corpus, InfiniteCorpus
from redraft.training.objectives.distillation import DrafterObjective
from redraft.training.runs.run import OptimizerConfig, Run


def drafter_run(
    base: DiffusionLM,
    path: str,
    data: Corpus | InfiniteCorpus,
    framing: Framing,
    *,
    drafter: DraftConfig = SideDrafter(),
    lora: int = 16,
    objective: DrafterObjective = DrafterObjective(),
    steps: int = 1000,
    batch: int = 8,
    lr: float = 1e-3,
    seed: int = 0,
) -> Run:
    """Returns a run that trains a drafter for a causal model; the model's own weights do not change.

    Args:
        base: a causal model, loaded from `path`
        path: directory of its weights
        data: the training corpus; the targets are the model's own distributions on it
        framing: how texts become rows
        drafter: a separate network, or the model itself with an adapter that is active at masks
        lora: rank of that adapter
        objective: the distillation loss, with the weights of the positions in a block
        steps: training steps
        batch: rows per step
        lr: learning rate, with warm-up over the first tenth of the steps
        seed: seed of the initial weights and of the row order
    """
    _require_plain(base, path)
    if base.tokenizer is None:
        raise ValueError(f"{path} has no tokenizer; put its tokenizer.json there")
    adapter = LoraConfig(lora, 2.0 * lora) if drafter.owns_adapter else None
    model = replace(base.config, network=replace(base.config.network, lora=adapter)).with_part(drafter)
    return Run(
        model,
        data,
        base.tokenizer,
        framing,
        objective,
        Blocks(Ancestral(1), stop=True),
        OptimizerConfig(lr=lr, warmup=steps // 10, floor=0.1, ema=0.98),
        steps,
        batch,
        seed=seed,
        base=path,
        samples=0,  # the model itself does not change
        eval_every=steps,
    )


def _require_plain(base: DiffusionLM, path: str) -> None:
    if not base.config.network.pattern.causal:
        raise ValueError(f"{path} needs no drafter: it fills masks, several tokens per pass; give a causal model")
    if base.config.network.lora is not None or base.config.part(DraftConfig) is not None:
        raise ValueError(f"{path} already has an adapter or a drafter; give the causal model it was made from")
