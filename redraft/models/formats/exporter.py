"""Exports our models in formats of other projects: llama, qwen, llada, dream, sdar.

A format fixes how its readers run the weights: the attention pattern, and which state predicts a token. vLLM and SGLang
serve any directory of Llama or Qwen layout as a causal model, without a warning; another model would produce nonsense.
A model that would be run differently from how it was trained is therefore refused, unless `weights_only` is set.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from redraft.core.text.tokenizers import HubTokenizer
from redraft.models.checkpoints import writer
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats import llada, llama
from redraft.models.formats.export_format import _describe_execution, _SettingsJson
from redraft.models.formats.layout import _Layout

_EXPORT_FORMATS = {
    name: {**llama._EXPORTS, **llada._EXPORTS}[name] for name in ("llama", "qwen", "llada", "dream", "sdar")
}


def export_as(
    model: DiffusionLM, path: str | Path, format: str, *, weights_only: bool = False
) -> list[tuple[str, str]]:
    """Write a model to a directory in another project's format.

    Returns pairs of a reader and how it runs the model: first the format's own readers, then redraft.

    model: a masked or causal token model whose transformer has Llama's components and no time embedding.
    path: a new directory.
    format: llama, qwen, llada, dream or sdar.
    weights_only: write the weights even if the format's readers would run them differently from how they were trained.
    """
    if format not in _EXPORT_FORMATS:
        raise CheckpointError(f"there is no format {format}; choose from {', '.join(_EXPORT_FORMATS)}")
    export_format, trained_as = _EXPORT_FORMATS[format], _describe_execution(model)
    _require_plain(model, format)
    layout, run_as = export_format.layout(model.config.network), export_format.run_as
    if trained_as != run_as and not weights_only:
        raise CheckpointError(
            f"this model runs as: {trained_as}; readers of {format} would run it as: {run_as}, silently wrong. Choose "
            "another format, or --weights-only if you know how to run it"
        )
    files = {"model.safetensors": _foreign_tensors(model, layout, export_format.prefix)}
    documents = {"config": export_format.settings(model), **_tokenizer_files(model)}
    writer.write_foreign(Path(path), files, documents, _model_card(format, trained_as, run_as))
    own = trained_as if trained_as == run_as else f"{trained_as} (*)"
    return [(f"{format}: {export_format.readers}", run_as), ("redraft", own)]


def _require_plain(model: DiffusionLM, format: str) -> None:
    """Raise if the model has a part that no export format can store: time, vectors, layers of GPT-2 or the DiT."""
    c, network = model.config, model.config.network
    unsupported = {
        f"{type(c.process).__name__} noise": not c.process.fills_masks,
        "a codec": c.codec is not None,
        "an encoder": "encoder" in model.parts,
        "an error head": "errors" in model.parts,
        "an attribute classifier": "attributes" in model.parts,
        "a time embedding": network.time is not None,
        "learned positions": network.positions is not None,
        "LayerNorm": network.norm != "rms",
        "an MLP without gate": not network.gated,
        "a bias in the output layer": network.head_bias,
        "no rotary positions": network.rotary is None,
    }
    if features := [name for name, present in unsupported.items() if present]:
        raise CheckpointError(f"the format {format} cannot store this model: it has {' and '.join(features)}")


def _foreign_tensors(model: DiffusionLM, layout: _Layout, prefix: str) -> dict[str, Tensor]:
    """Return the tensors under foreign names, with stacked ones split; biases that only the layout has are zero."""
    state, config = model.network.state_dict(), model.config.network
    tensors: dict[str, Tensor] = {}
    for name, parts in layout.sources(config, {n: t.shape for n, t in state.items()}).items():
        pieces = state[name].split([shape[0] for shape in parts.values()])
        tensors |= dict(zip(parts, pieces, strict=True))
    if layout is llama._qwen2_layout and not config.qkv_bias:
        tensors |= {n.replace(".weight", ".bias"): t.new_zeros(len(t)) for n, t in tensors.items() if n.endswith(_QKV)}
    return {name if name.startswith("lm_head.") else f"{prefix}{name}": tensor for name, tensor in tensors.items()}


_QKV = (".q_proj.weight", ".k_proj.weight", ".v_proj.weight")


def _tokenizer_files(model: DiffusionLM) -> dict[str, _SettingsJson]:
    """Return the content of tokenizer.json and tokenizer_config.json, without the mask we add to causal models."""
    hub = model.tokenizer
    if not isinstance(hub, HubTokenizer):
        return {}
    special = {f"{name}_token": token for name in ("bos", "eos", "pad") if (token := getattr(hub, name)) is not None}
    if hub.mask is not None and not model.config.is_plain_causal:
        special["mask_token"] = hub.mask
    template = {} if hub.template is None else {"chat_template": hub.template}
    definition = hub.as_file(mask=not model.config.is_plain_causal)
    return {
        "tokenizer": definition,
        "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", **special, **template},
    }


def _model_card(format: str, trained_as: str, run_as: str) -> str:
    lines = [f"Written by Redraft in the format {format}.", "", f"This model was trained to run as: {trained_as}."]
    if trained_as != run_as:
        lines += ["", f"Readers of this format run it as: {run_as}. That is wrong for these weights."]
    return "\n".join(lines) + "\n"
