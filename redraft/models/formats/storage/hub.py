"""Downloads models from the Hugging Face hub: "hf:org/name" or "hf:org/name@revision". Code is never downloaded."""

from __future__ import annotations

import re
from pathlib import Path

from redraft.models.checkpoints.reader import CheckpointError

_NAME = re.compile(r"hf:/?/?([\w.-]+/[\w.-]+|[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
_FILES = ("config.json", "*.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


def resolve_hub_path(path: str | Path, more: tuple[str, ...] = ()) -> tuple[Path, str | None]:
    """Download a model named "hf:…"; return its directory and repository name. For any other path, return it and None.

    more: patterns of further files to download.
    """
    if not str(path).startswith("hf:"):
        return Path(path), None
    if (match := _NAME.fullmatch(str(path))) is None:
        raise CheckpointError(f"{path} names no repository; write hf:org/name, or hf:org/name@revision")
    return _download(match[1], match[2], [*_FILES, *_TEMPLATES, *more]), match[1]


def _download(name: str, revision: str | None, patterns: list[str]) -> Path:
    try:
        import huggingface_hub
    except ImportError:
        raise CheckpointError("hf:… needs the package huggingface_hub: pip install 'redraft[hub]'") from None
    try:
        return Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=patterns))
    except (OSError, ValueError, RuntimeError) as error:  # the library's own errors and network errors are OSErrors
        raise CheckpointError(
            f"{name} cannot be downloaded from the Hugging Face hub ({_summarize(error)}); check the name and the "
            "network, or give a directory"
        ) from error
    except Exception as error:  # the library also passes on errors of its HTTP client
        raise CheckpointError(f"{name} cannot be downloaded from the Hugging Face hub ({_summarize(error)})") from error


def _summarize(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.200}" if lines else type(error).__name__
