"""Models on disk: of runs, checkpoints, exports, adapters and other projects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from redraft.core.text.tokenizers import Tokenizer
from redraft.models import shipped
from redraft.models.checkpoints import reader, serialization, writer
from redraft.models.checkpoints.adapter import AdapterConfig, merge_adapter_config, merge_adapter_weights
from redraft.models.checkpoints.reader import Checkpoint, CheckpointError
from redraft.models.config import DiffusionLMConfig
from redraft.models.cpu_weights import with_weight_format
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats.importer import import_checkpoint, is_packaged_model
from redraft.models.formats.registry import ImportedModel, import_folder
from redraft.models.formats.storage.files import read_settings, refuse_pickles
from redraft.models.formats.storage.hub import resolve_hub_path
from redraft.training.runs.run import Run


@dataclass(frozen=True)
class BundledModel:
    """A model that no run of ours made, as an export describes it."""

    model: DiffusionLMConfig
    tokenizer: Tokenizer | None = None
    assumed: tuple[str, ...] = ()  # what its original files did not say


@dataclass(frozen=True)
class LoadedModel:
    """A model, and how it came to be."""

    model: DiffusionLM
    run: Run | None  # None: no run of ours made it
    step: int | None  # of the checkpoint; None: an exported model


def load(
    path: str | Path,
    device: torch.device | str = "cpu",
    trust: tuple[str, ...] = (),
    *,
    dtype: torch.dtype | None = None,
    mask: int | str | None = None,
    attention: str | None = None,
    weights: Literal["int8", "packed"] | None = None,
) -> DiffusionLM:
    """The model of a run, of one checkpoint, or of an exported directory, with averaged weights.

    Only the config and the weights are read, once, and verified as they are read; the memory needed is about that of
    the weights. Directories of other projects are recognised by their config.json: MDLM, SEDD, UDLM, GIDD, BD3-LM,
    FlexMDM, LLaDA, Dream, DiffuGPT, DiffuLLaMA, A2D, Open-dCoder, SDAR, Fast-dLLM v2, and plain causal GPT-2, Llama,
    Qwen2 and Qwen3. `model.assumed` says what their files left open.

    Args:
        path: directory of a run (its newest sound checkpoint is taken), of a checkpoint, or of an exported model;
            "hf:org/name" (or "hf:org/name@revision") is downloaded from the Hugging Face hub; "story" is the small
            model that comes with the package
        device: where to put the weights
        trust: names of modules besides our own whose classes the config may name
        dtype: dtype of the weights; None: float32. Call a model with 16-bit weights under torch.autocast
        mask: the mask token of another project's model, its id or its spelling, where the files do not name it
        attention: causal, full or block:SIZE, for another project's model whose files do not say it
        weights: int8: matrices of one byte per number and bf16 activations; packed: fp32 as oneDNN lays it out. Both
            make writing faster on a CPU, and a draft then changes no bit of a text; such a model is neither trained nor
            exported. None: as they are
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
    """The model as `load` gives it, with the same arguments, and the run and step it came from."""
    path, name = _located(path)
    weights: Mapping[str, Tensor]
    kind = _kind(path)
    if kind != "foreign" and (mask is not None or attention is not None):
        raise CheckpointError(f"mask and attention are for models of other projects; {path} is one of ours")
    match kind:
        case "foreign":
            found = import_folder(path, dtype, name=name, mask=mask, attention=attention)
            return LoadedModel(build_model(bundle_model(found), found.weights, device, dtype), None, None)
        case "export":
            exported = reader.read_export(path, device, dtype)
            data, weights, step = exported.config, exported.tensors, None
        case kind:
            saved = _read(path, kind, ("config", "model"), device, dtype)
            data, weights, step = saved.documents["config"], saved.tensors["model"], saved.step
    origin = _described(data, trust)
    if isinstance(origin, AdapterConfig):
        origin, weights = _on_its_base(origin, weights, path, dtype)
    return LoadedModel(build_model(origin, weights, device, dtype), origin if isinstance(origin, Run) else None, step)


def _on_its_base(
    said: AdapterConfig, weights: Mapping[str, Tensor], path: Path, dtype: torch.dtype | None
) -> tuple[BundledModel, dict[str, Tensor]]:
    """The causal model that an adapter belongs to, and all weights of both."""
    if is_packaged_model(said.base):
        found = import_checkpoint(said.base)
        base = build_model(bundle_model(found), found.weights, "cpu")
    elif Path(said.base).is_dir():
        base = load(said.base)
    else:
        raise CheckpointError(f"the adapter {path} needs its causal model at {said.base}, which is not a directory")
    model = BundledModel(merge_adapter_config(said, base, str(path)), base.tokenizer, base.assumed)
    return model, merge_adapter_weights(base, weights, dtype)


def bundle_model(found: ImportedModel) -> BundledModel:
    """A foreign model without its weights, as an export of it says it."""
    return BundledModel(found.model, found.tokenizer, found.assumed)


def describe_run(path: str | Path, trust: tuple[str, ...] = ()) -> tuple[Run | None, int | None]:
    """The run that made a directory (None if no run of ours did) and the step; no weights are read."""
    path = _located(path)[0]
    match _kind(path):
        case "foreign":
            return None, None
        case "export":
            origin, step = _described(reader.read_export_config(path), trust), None
        case kind:
            saved = _read(path, kind, ("config",))
            origin, step = _described(saved.documents["config"], trust), saved.step
    return (origin if isinstance(origin, Run) else None), step


def _located(path: str | Path) -> tuple[Path, str | None]:
    """The directory that a name stands for, and the name of its repository if it is on the hub."""
    ours = shipped.shipped_folder(path)
    return (ours, None) if ours is not None else resolve_hub_path(path)


def _kind(path: Path) -> Literal["run", "checkpoint", "export", "foreign"]:
    """What a directory holds, judged by its files."""
    if not path.is_dir():
        refuse_pickles(path)
        raise CheckpointError(
            f"{path} is not a directory; give the directory of a run, say runs/demo, "
            "or story, the model that comes with us"
        )
    if (path / reader.MANIFEST).exists() and (path / "state.json").exists():
        return "checkpoint"
    if not (path / "config.json").exists():
        refuse_pickles(path)
        return "run"
    return "export" if "class" in read_settings(path) else "foreign"


def _read(
    path: Path,
    kind: Literal["run", "checkpoint"],
    only: tuple[str, ...],
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Checkpoint:
    """Some files of a checkpoint, or of the newest one of a run."""
    source = reader.read_checkpoint if kind == "checkpoint" else load_newest
    saved = source(path, device, only=only, dtype=dtype)
    if missing := [name for name in only if name not in {**saved.documents, **saved.tensors}]:
        raise CheckpointError(f"the checkpoint of step {saved.step} lacks {' and '.join(missing)}")
    return saved


@torch.no_grad()
def init_from(model: DiffusionLM, path: str | Path, part: nn.Module | None = None) -> None:
    """Takes over the weights of the model at `path`; weights that only ours has stay as they are.

    If ours alone has self-conditioning, it begins by ignoring its hints.
    `part`: a module of `model`, such as its codec, if only its weights are wanted.
    """
    if not Path(path).is_dir():
        raise CheckpointError(f"the base {path} is not a directory; train it first, or name another with --base DIR")
    ours, base, wanted = dict(model.named_parameters()), load(path), model if part is None else part
    place = next(name for name, module in model.named_modules() if module is wanted)
    if place not in dict(base.named_modules()):
        raise CheckpointError(f"{path} cannot be the base of this model: it has no {place}; build both alike")
    named = base.get_submodule(place).named_parameters(prefix=place)
    told = "network.embedding.weight" if model.config.hint else None  # reads hints too
    theirs = {n: _widened(p, ours[n].shape, n == told) if n in ours else p for n, p in named}
    wrong = [n for n, p in theirs.items() if n not in ours or p.shape != ours[n].shape]
    if wrong:
        raise CheckpointError(f"{path} cannot be the base of this model: it has another {wrong[0]}; build both alike")
    for name, p in theirs.items():
        ours[name].copy_(p)


def _widened(p: Tensor, shape: torch.Size, told: bool) -> Tensor:
    """A table of tokens with a row for the mask, the mean of the others; an input layer with zeros for the hint."""
    p = p.detach()
    if p.dim() == 2 and tuple(shape) == (len(p) + 1, p.shape[1]):
        return torch.cat([p, p.mean(0, keepdim=True)])
    if told and tuple(shape) == (len(p), 2 * p.shape[1]):
        return torch.cat([p, torch.zeros_like(p)], 1)
    return p


def load_newest(
    path: Path,
    device: torch.device | str = "cpu",
    *,
    only: Collection[str] | None = None,
    dtype: torch.dtype | None = None,
) -> Checkpoint:
    """The newest sound checkpoint of a run's directory; only the files asked for are read and must be sound."""
    if (found := reader.read_newest(path, device, only=only, dtype=dtype)) is None:
        raise CheckpointError(f"{path} is not a model: it holds neither step-… directories nor config.json")
    return found


def export(path: str | Path, model: DiffusionLM, run: Run | None = None, card: str = "") -> Path:
    """Writes a directory to share: config.json (the run that made the model, or the model), weights, README.md."""
    weights = {n: p.detach() for n, p in model.named_parameters()}
    origin = BundledModel(model.config, model.tokenizer, model.assumed) if run is None else run
    return writer.write_export(Path(path), weights, serialization.to_json(origin), None, card)


def build_model(
    run: Run | BundledModel,
    weights: Mapping[str, Tensor],
    device: torch.device | str,
    dtype: torch.dtype | None = None,
) -> DiffusionLM:
    """The model of a run with given weights, ready to use; it keeps the tensors themselves where it can."""
    with torch.device("meta"):  # spend no time on weights that are overwritten
        model = DiffusionLM(run.model, run.tokenizer)
    needed, given = ({n: tuple(w.shape) for n, w in named.items()} for named in (model.state_dict(), weights))
    if needed != given:
        name = min(dict(needed.items() ^ given.items()))
        raise CheckpointError(
            f"weights and config do not belong together: {name} is {given.get(name, 'missing')}, "
            f"the config needs {needed.get(name, 'no such tensor')}"
        )
    if (wrong := reader.first_nonfinite(weights)) is not None:
        raise CheckpointError(f"{wrong} has values that are nan or infinite; use an earlier checkpoint, or train anew")
    dtypes = {n: dtype if dtype and w.is_floating_point() else w.dtype for n, w in model.state_dict().items()}
    model.load_state_dict(_owned(weights, device, dtypes), assign=True)
    model.assumed = run.assumed if isinstance(run, BundledModel) else ()
    return model.eval()


def _owned(
    weights: Mapping[str, Tensor], device: torch.device | str, dtypes: Mapping[str, torch.dtype]
) -> dict[str, Tensor]:
    """The tensors themselves, not copies that would need as much memory again; only shared memory is copied."""
    owned: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, weight in weights.items():
        tensor = weight.detach().to(device, dtypes[name])
        storage = tensor.untyped_storage()
        alone = tensor.is_contiguous() and storage.nbytes() == tensor.nbytes and storage.data_ptr() not in seen
        owned[name] = tensor if alone else tensor.clone(memory_format=torch.contiguous_format)
        seen.add(storage.data_ptr())
    return owned


def _described(data: serialization.JSON, trust: tuple[str, ...]) -> Run | BundledModel | AdapterConfig:
    found = serialization.from_json(data, trust)
    if not isinstance(found, Run | BundledModel | AdapterConfig):
        kinds = "a Run, a Bundle or an AdapterOf"
        raise CheckpointError(f"config.json describes a {type(found).__name__}; it must describe {kinds}")
    return found
