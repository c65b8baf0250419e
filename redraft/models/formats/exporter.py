"""Our models in the formats of others: llama, qwen, llada, dream, sdar.

A format says how its weights are run: who sees whom, and which state predicts a token. vLLM and SGLang serve any
directory of Llama or Qwen layout causally, without a word; a model that was not trained so would write nonsense. So a
model that is something else than its format says is refused, unless the weights alone are wanted.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from redraft.core.processes.masked import Masked
from redraft.core.text.tokenizers import HubTokenizer
from redraft.models.checkpoints import writer
from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.formats import llada, llama
from redraft.models.formats.export_format import (
    _execution,
    _SettingsJson,
)
from redraft.models.formats.layout import Layout

EXPORT_FORMATS = {
    name: {**llama._EXPORTS, **llada._EXPORTS}[name] for name in ("llama", "qwen", "llada", "dream", "sdar")
}


def export_as(
    model: DiffusionLM, path: str | Path, format: str, *, weights_only: bool = False
) -> list[tuple[str, str]]:
    """Write a model as a directory of another project's format; returns who reads it, and how they run it.

    model: a model of tokens without time: a transformer of Llama's kind.
    path: a new directory.
    format: llama, qwen, llada, dream or sdar.
    weights_only: also write a model that the format's readers would run otherwise than it was trained.
    """
    if format not in EXPORT_FORMATS:
        raise CheckpointError(f"there is no format {format}; choose from {', '.join(EXPORT_FORMATS)}")
    outward, own = EXPORT_FORMATS[format], _execution(model)
    _require_plain(model, format)
    layout = outward.layout(model.config.network)
    if own != outward.runs and not weights_only:
        raise CheckpointError(
            f"this model runs as: {own}; readers of {format} would run it as: {outward.runs}, silently wrong. Choose "
            "another format, or --weights-only if you know how to run it"
        )
    files = {"model.safetensors": _tensors(model, layout, outward.prefix)}
    documents = {"config": outward.settings(model), **_tokenizer(model)}
    writer.write_foreign(Path(path), files, documents, _card(format, own, outward.runs))
    return [(f"{format}: {outward.readers}", outward.runs), ("redraft", own if own == outward.runs else f"{own} (*)")]


def _require_plain(model: DiffusionLM, format: str) -> None:
    """Formats of language models know neither time nor vectors, nor the layers of GPT-2 and the DiT."""
    c, network = model.config, model.config.network
    odd = {
        f"{type(c.process).__name__} noise": not isinstance(c.process, Masked),
        "a codec": c.codec is not None,
        "an encoder": c.encoder is not None,
        "a layer for errors": c.errors,
        "a layer for attributes": bool(c.attributes),
        "a network that is told the time": network.time is not None,
        "learned positions": network.positions is not None,
        "LayerNorm": network.norm != "rms",
        "an MLP without gate": not network.gated,
        "a bias of the output layer": network.head_bias,
        "no rotary positions": network.rotary is None,
    }
    if found := [name for name, there in odd.items() if there]:
        raise CheckpointError(f"the format {format} has no room for this model: it has {' and '.join(found)}")


def _tensors(model: DiffusionLM, layout: Layout, prefix: str) -> dict[str, Tensor]:
    """Their tensors: ours by their names, stacked ones cut apart; biases that the layout has and we do not are zero."""
    ours, config = model.network.state_dict(), model.config.network
    found: dict[str, Tensor] = {}
    for name, parts in layout.sources(config, {n: t.shape for n, t in ours.items()}).items():
        pieces = ours[name].split([shape[0] for shape in parts.values()])
        found |= dict(zip(parts, pieces, strict=True))
    if layout is llama.qwen2 and not config.qkv_bias:
        zero = {n.replace(".weight", ".bias"): t.new_zeros(len(t)) for n, t in found.items() if n.endswith(_QKV)}
        found |= zero
    return {name if name.startswith("lm_head.") else f"{prefix}{name}": tensor for name, tensor in found.items()}


_QKV = (".q_proj.weight", ".k_proj.weight", ".v_proj.weight")


def _tokenizer(model: DiffusionLM) -> dict[str, _SettingsJson]:
    """tokenizer.json and tokenizer_config.json; the mask of a causal model is ours alone, and no token of theirs."""
    hub = model.tokenizer
    if not isinstance(hub, HubTokenizer):
        return {}
    named = {f"{name}_token": token for name in ("bos", "eos", "pad") if (token := getattr(hub, name)) is not None}
    if hub.mask is not None and not model.config.continues:
        named["mask_token"] = hub.mask
    template = {} if hub.template is None else {"chat_template": hub.template}
    definition = hub.as_file(mask=not model.config.continues)
    return {
        "tokenizer": definition,
        "tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast", **named, **template},
    }


def _card(format: str, own: str, theirs: str) -> str:
    lines = [f"Written by Redraft in the format {format}.", "", f"It was trained to run as: {own}."]
    if own != theirs:
        lines += ["", f"Readers of this format run it as: {theirs}. That is wrong for these weights."]
    return "\n".join(lines) + "\n"
