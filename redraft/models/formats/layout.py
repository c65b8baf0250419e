"""Maps our tensor names to those of another project, and converts its weights accordingly.

One of our tensors may stack several foreign ones by rows (q, k and v; gate and up). Every tensor must be accounted for:
a missing, unexpected or misshapen one is an error that names it and says what is needed. Only known buffers, which
follow from the settings, are ignored. No values are read, and no memory is taken, before all shapes have been checked.
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

_NameTable: TypeAlias = Mapping[str, tuple[str, ...]]  # our name prefix → foreign prefixes; * stands for a layer index

_BUFFERS = re.compile(
    r"(.*\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached)"
    r"|sampling_eps_(min|max)"  # BD3-LM: range of the training times
    r"|h\.\d+\.attn\.(bias|masked_bias)"  # GPT-2: causal mask
    r"|logit_bias"  # GIDD's training format: all zeros
)


@dataclass(frozen=True)
class _Layout:
    """How one family of projects stores a transformer: tensor names, sizes, and which tensors are transposed."""

    name_table: Callable[[TransformerConfig], _NameTable]
    read_config: Callable[[ForeignWeights, ForeignSettings], TransformerConfig]  # from weights with replaced prefixes
    prefixes: Mapping[str, str] = field(default_factory=dict)  # foreign prefix → replacement; versions differ in them
    transposed: tuple[str, ...] = ()  # suffixes of names of tensors stored as (in, out) instead of (out, in)

    def __call__(
        self, state: ForeignWeights, settings: ForeignSettings, dtype: torch.dtype | None = None
    ) -> tuple[TransformerConfig, dict[str, Tensor]]:
        """Return our config and state dict; its tensors are new, in `dtype` (default float32)."""
        tensors = _replace_prefixes(state, self.prefixes)
        config = self.read_config(tensors, settings)
        tensors = _drop_tied_copy(tensors, self.name_table(config)) if config.tied else tensors
        sources = self.sources(config, shapes := _required_tensors(config))
        self._require(tensors, {part: shape for parts in sources.values() for part, shape in parts.items()})
        dtype = dtype or torch.float32
        return config, {
            n: self._stack({p: tensors[p] for p in parts}, shapes[n], dtype) for n, parts in sources.items()
        }

    def sources(self, config: TransformerConfig, shapes: Mapping[str, torch.Size]) -> dict[str, dict[str, torch.Size]]:
        """Map each of our names to the foreign tensors that are stacked into it, with their shapes (out, in)."""
        table = self.name_table(config)
        return {
            name: dict(_part_shapes(_foreign_names(name, table), name, shape, config)) for name, shape in shapes.items()
        }

    def _require(self, tensors: Mapping[str, TensorSource], required: Mapping[str, torch.Size]) -> None:
        """Raise unless `tensors` are the required ones, with their shapes, and floating-point."""
        missing = [f"{name} {list(shape)}" for name, shape in required.items() if name not in tensors]
        unexpected = [name for name in tensors if name not in required and not _BUFFERS.fullmatch(name)]
        kinds = (("missing", missing), ("unexpected", unexpected))
        faults = [f"{kind} {shorten_list(names)}" for kind, names in kinds if names]
        if faults:
            raise LayoutError(f"the weights are of another layout or size: {'; '.join(faults)}")
        for name, shape in required.items():
            stored_shape = shape[::-1] if self.is_transposed(name) else shape
            if tensors[name].shape != stored_shape:
                raise LayoutError(
                    f"{name} is {list(tensors[name].shape)}, where the settings need {list(stored_shape)}"
                )
            if not tensors[name].dtype.is_floating_point:
                raise LayoutError(f"{name} holds {tensors[name].dtype}; weights must be floating-point numbers")

    def _stack(self, parts: Mapping[str, TensorSource], shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Read foreign tensors and stack them by rows."""
        out, row = torch.empty(shape, dtype=dtype), 0
        for name, part in parts.items():
            if self.is_transposed(name):
                transposed = torch.empty(part.shape, dtype=dtype)
                copy_into(transposed, part)
                out.copy_(transposed.T)  # transposed tensors are never stacked
            else:
                copy_into(out[row : row + part.shape[0]], part)
                row += part.shape[0]
        return out

    def is_transposed(self, name: str) -> bool:
        return name.endswith(self.transposed)


def _required_tensors(config: TransformerConfig) -> dict[str, torch.Size]:
    """Return the shape of each tensor of a transformer with this config, without allocating memory."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in Transformer(config, NetworkIO(1, 1)).state_dict().items()}


def _part_shapes(
    foreign_names: list[str], name: str, shape: torch.Size, config: TransformerConfig
) -> Iterator[tuple[str, torch.Size]]:
    """Return the shape of each foreign tensor stacked into one of ours: queries, keys and values, or equal parts."""
    rows = [shape[0] // len(foreign_names)] * len(foreign_names)
    if len(foreign_names) == 3 and ".attention.qkv." in name:
        rows = [n * config.head_width for n in (config.heads, config.groups, config.groups)]
    return ((foreign_name, torch.Size([n, *shape[1:]])) for foreign_name, n in zip(foreign_names, rows, strict=True))


def _foreign_names(name: str, table: _NameTable) -> list[str]:
    """Translate one of our names: blocks.3.mlp.up.bias is found under the entry blocks.*.mlp.up."""
    match = re.match(r"blocks\.(\d+)\.", name)
    layer = match[1] if match else ""
    name = re.sub(r"^blocks\.\d+\.", "blocks.*.", name)
    entry = next((entry for entry in table if f"{name}.".startswith(f"{entry}.")), None)
    if entry is None:
        raise LayoutError(f"this layout has no {name}")
    return [(foreign_name + name.removeprefix(entry)).replace("*", layer) for foreign_name in table[entry]]


def _replace_prefixes(state: ForeignWeights, prefixes: Mapping[str, str]) -> dict[str, TensorSource]:
    """Replace the first matching prefix of each name."""
    renamed: dict[str, TensorSource] = {}
    for name, tensor in state.items():
        prefix = next((p for p in prefixes if name.startswith(p)), "")
        new_name = prefixes.get(prefix, "") + name.removeprefix(prefix)
        if new_name in renamed:
            raise LayoutError(f"the weights hold {new_name} twice, the second time as {name}; remove one")
        renamed[new_name] = as_tensor_source(tensor)
    return renamed


def _drop_tied_copy(state: Mapping[str, TensorSource], table: _NameTable) -> dict[str, TensorSource]:
    """Drop the output weights of a tied network; if only they are stored, rename them to the embedding.

    Raises if both are stored with different values.
    """
    (embedding,), (output,) = _foreign_names("embedding.weight", table), _foreign_names("output.weight", table)
    if output in state and embedding in state and not same_values(state[output], state[embedding]):
        raise LayoutError(f"the settings tie {output} to {embedding}, but the two differ; untie them in the settings")
    if output in state and embedding not in state:
        return {embedding if name == output else name: tensor for name, tensor in state.items()}
    return {name: tensor for name, tensor in state.items() if name != output}


# --- settings ---


def _flatten_settings(config: ForeignSettings) -> ForeignSettings:
    """Merge the sections "algo" and "model" into the top level: training runs nest their settings, exports do not."""
    return {**config, **config.get("algo", {}), **config.get("model", {})}


def _require_setting(config: ForeignSettings, *names: str) -> Any:
    """Return the first of these settings that is present; no defaults, since a wrong guess gives wrong outputs."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise LayoutError(f"the settings lack {' or '.join(names)}; give the config.json that belongs to the weights")


def _require_int_setting(config: ForeignSettings, *names: str) -> int:
    """Return the first of these settings that is present; it must be an integer."""
    value = _require_setting(config, *names)
    if type(value) is not int:
        raise LayoutError(f"{' or '.join(names)} is {value!r:.60}; it must be an integer")
    return value


def _require_supported(config: ForeignSettings, **values: object) -> None:
    """Raise if a setting has another value than the one our transformer supports; absent and null are fine."""
    for name, supported in values.items():
        value = config.get(name)
        if value is not None and value != supported:
            raise LayoutError(f"{name}={value!r:.100} is not supported; only {name}={supported!r} can be loaded")


def _matrix_shape(state: ForeignWeights, name: str) -> torch.Size:
    """Return the shape of a tensor, which must exist and be a matrix."""
    if name not in state:
        raise LayoutError(f"the weights lack {name}; they are of another layout")
    if len(state[name].shape) != 2:
        raise LayoutError(f"{name} is {list(state[name].shape)}; it must have two dimensions")
    return state[name].shape
