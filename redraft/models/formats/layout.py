"""Tables from our names of tensors to theirs, and the one way to follow them.

Several of theirs may be stacked by rows into one of ours (q, k, v; gate, up). Every tensor must be accounted for:
missing, unexpected and misshapen ones are errors that name it and what is needed; buffers that follow from the settings
are ignored by name. Nothing is read, and no memory taken, before all shapes fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from redraft.models.formats.storage.tensors import (
    ForeignSettings,
    ForeignWeights,
    LayoutError,
    TensorSource,
    as_tensor_source,
    copy_into,
    same_values,
    shorten_list,
)
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.transformer import Transformer

_NameTable: TypeAlias = Mapping[str, tuple[str, ...]]  # beginnings of names, ours → theirs; * is the number of a layer

_BUFFERS = re.compile(
    r"(.*\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)"
    r"|sampling_eps_(min|max)"  # BD3-LM: the clipping of its training times
    r"|h\.\d+\.attn\.(bias|masked_bias)"  # GPT-2: the causal mask
    r"|logit_bias"  # GIDD in training format: zero
)


@dataclass(frozen=True)
class Layout:
    """How one family of projects stores a transformer."""

    table: Callable[[TransformerConfig], _NameTable]
    sizes: Callable[[ForeignWeights, ForeignSettings], TransformerConfig]  # from their names, the beginnings replaced
    beginnings: Mapping[str, str] = field(default_factory=dict)  # of their names, which differ between versions
    transposed: tuple[str, ...] = ()  # endings of names of tensors stored (in, out), unlike every linear layer

    def __call__(
        self, state: ForeignWeights, settings: ForeignSettings, dtype: torch.dtype | None = None
    ) -> tuple[TransformerConfig, dict[str, Tensor]]:
        """Our config and our state dict; the tensors are new, in `dtype`, by default float32."""
        given = _replace_prefixes(state, self.beginnings)
        ours = self.sizes(given, settings)
        given = _drop_tied_copy(given, self.table(ours)) if ours.tied else given
        sources = self.sources(ours, shapes := _required_tensors(ours))
        self._require(given, {part: shape for parts in sources.values() for part, shape in parts.items()})
        dtype = dtype or torch.float32
        return ours, {n: self._read({p: given[p] for p in parts}, shapes[n], dtype) for n, parts in sources.items()}

    def sources(self, config: TransformerConfig, shapes: Mapping[str, torch.Size]) -> dict[str, dict[str, torch.Size]]:
        """Our names → the tensors of theirs that are stacked into one of ours, each with its shape (rows, columns)."""
        table = self.table(config)
        return {name: dict(_parts(_foreign_names(name, table), name, shape, config)) for name, shape in shapes.items()}

    def _require(self, given: Mapping[str, TensorSource], pieces: Mapping[str, torch.Size]) -> None:
        missing = [f"{name} {list(shape)}" for name, shape in pieces.items() if name not in given]
        unexpected = [name for name in given if name not in pieces and not _BUFFERS.fullmatch(name)]
        kinds = (("missing", missing), ("unexpected", unexpected))
        faults = [f"{kind} {shorten_list(names)}" for kind, names in kinds if names]
        if faults:
            raise LayoutError(f"the weights are of another layout or size: {'; '.join(faults)}")
        for name, shape in pieces.items():
            wanted = shape[::-1] if self.is_transposed(name) else shape
            if given[name].shape != wanted:
                found = list(given[name].shape)
                raise LayoutError(f"{name} is {found}, where the settings need {list(wanted)}")
            if not given[name].dtype.is_floating_point:
                raise LayoutError(f"{name} holds {given[name].dtype}; weights must be floating-point numbers")

    def _read(self, found: Mapping[str, TensorSource], shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """One above the other."""
        out, row = torch.empty(shape, dtype=dtype), 0
        for name, part in found.items():
            if self.is_transposed(name):
                turned = torch.empty(part.shape, dtype=dtype)
                copy_into(turned, part)
                out.copy_(turned.T)  # such tensors are not stacked
            else:
                copy_into(out[row : row + part.shape[0]], part)
                row += part.shape[0]
        return out

    def is_transposed(self, name: str) -> bool:
        return name.endswith(self.transposed)


def _required_tensors(config: TransformerConfig) -> dict[str, torch.Size]:
    """The tensors that a transformer of this config has; no memory is taken."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in Transformer(config, NetworkIO(1, 1)).state_dict().items()}


def _parts(
    names: list[str], ours: str, shape: torch.Size, config: TransformerConfig
) -> Iterator[tuple[str, torch.Size]]:
    """The tensors that are stacked into one of ours: queries, keys and values; else equal ones."""
    rows = [shape[0] // len(names)] * len(names)
    if len(names) == 3 and ".attention.qkv." in ours:
        rows = [n * config.head_width for n in (config.heads, config.groups, config.groups)]
    return ((name, torch.Size([n, *shape[1:]])) for name, n in zip(names, rows, strict=True))


def _foreign_names(name: str, table: _NameTable) -> list[str]:
    """Ours → theirs: blocks.3.mlp.up.bias by the entry blocks.*.mlp.up."""
    layer = re.match(r"blocks\.(\d+)\.", name)
    whole_number = layer[1] if layer else ""
    name = re.sub(r"^blocks\.\d+\.", "blocks.*.", name)
    entry = next((entry for entry in table if f"{name}.".startswith(f"{entry}.")), None)
    if entry is None:
        raise LayoutError(f"this layout has no {name}")
    return [(theirs + name.removeprefix(entry)).replace("*", whole_number) for theirs in table[entry]]


def _replace_prefixes(state: ForeignWeights, beginnings: Mapping[str, str]) -> dict[str, TensorSource]:
    """The same tensors, with the beginnings of their names replaced."""
    found: dict[str, TensorSource] = {}
    for name, tensor in state.items():
        old = next((b for b in beginnings if name.startswith(b)), "")
        new = beginnings.get(old, "") + name.removeprefix(old)
        if new in found:
            raise LayoutError(f"the weights hold {new} twice, the second time as {name}; remove one")
        found[new] = as_tensor_source(tensor)
    return found


def _drop_tied_copy(state: Mapping[str, TensorSource], table: _NameTable) -> dict[str, TensorSource]:
    """A tied output layer may be stored once more, but as the same numbers; the embedding may be the one left out."""
    (embedding,), (output,) = _foreign_names("embedding.weight", table), _foreign_names("output.weight", table)
    if output in state and embedding in state and not same_values(state[output], state[embedding]):
        raise LayoutError(f"the settings tie {output} to {embedding}, yet the two differ; set the tying to false")
    if output in state and embedding not in state:
        return {embedding if name == output else name: tensor for name, tensor in state.items()}
    return {name: tensor for name, tensor in state.items() if name != output}


# --- settings ---


def flatten_settings(config: ForeignSettings) -> ForeignSettings:
    """The settings of the diffusion papers: nested in training runs, flat in exports."""
    return {**config, **config.get("algo", {}), **config.get("model", {})}


def require_setting(config: ForeignSettings, *names: str) -> Any:
    """The first of these settings that is there; there is no default, since a wrong guess gives wrong numbers."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise LayoutError(f"the settings lack {' or '.join(names)}; give the config.json that belongs to the weights")


def require_int_setting(config: ForeignSettings, *names: str) -> int:
    """The same for a setting that must be a whole number."""
    found = require_setting(config, *names)
    if type(found) is not int:
        raise LayoutError(f"{' or '.join(names)} is {found!r:.60}; it must be a whole number")
    return found


def require_supported(config: ForeignSettings, **values: object) -> None:
    """Settings that the transformer cannot follow; one that is absent or null has the usual value."""
    for name, wanted in values.items():
        found = config.get(name)
        if found is not None and found != wanted:
            raise LayoutError(f"{name}={found!r:.100} is not supported; only {name}={wanted!r} can be loaded")


def _matrix_shape(state: ForeignWeights, name: str) -> torch.Size:
    """The shape of a tensor that must be there, a matrix."""
    if name not in state:
        raise LayoutError(f"the weights lack {name}; they are of another layout")
    if len(state[name].shape) != 2:
        raise LayoutError(f"{name} is {list(state[name].shape)}; it must have two dimensions")
    return state[name].shape
