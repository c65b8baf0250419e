"""metrics.jsonl of a run: one JSON object per line, written while it trains.

    train_loss_bits_per_token     what training minimises: with mask noise the cross-entropy of hidden tokens
    valid_bound_bits_per_token    held-out text: an upper bound of −log₂ p, exact if the network is causal
    valid_bits_per_char           the same per character
    valid_excess_bits_per_char    how far that is above the truth on the same texts, where the truth is known
    valid_excess_stderr           the standard error of this difference

The first two are different quantities and cannot be compared, although both are bits per token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redraft.models.checkpoints.reader import CheckpointError
from redraft.models.checkpoints.serialization import read_bytes

METRICS_FILE = "metrics.jsonl"


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log; a line that is still being written is left out."""
    file = out / METRICS_FILE
    return [parse_line(file, number, line) for number, line in enumerate(whole_lines(file), 1)]


def whole_lines(file: Path) -> list[bytes]:
    """The whole lines of a log, with their ends."""
    if not file.exists():
        return []
    try:
        return [line for line in read_bytes(file, 2**32).splitlines(keepends=True) if line.endswith(b"\n")]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}); restore or remove it") from error


def parse_line(file: Path, number: int, line: bytes) -> dict[str, Any]:
    """One record of a log."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or type(record.get("step")) is not int or not all(map(_fits, record.items())):
        raise CheckpointError(f"{file}:{number} is not a record of a training; mend or remove this line")
    return record


def _fits(item: tuple[str, Any]) -> bool:
    """Whether a figure is a number."""
    name, value = item
    figure = name.startswith(("train_", "valid_", "entropy_", "tokens_per_"))
    return type(value) in (int, float) if figure else True


def latest_values(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest value of every quantity, without the texts."""
    return {name: value for record in records for name, value in record.items() if name != "samples"}


def format_heldout(found: Mapping[str, Any]) -> str:
    """How a model, or a codec alone, does on held-out text, in words."""
    if "valid_reconstruction" in found:
        return f"{found['valid_reconstruction']:.1%} of held-out tokens survive the codec"
    if "valid_bits_per_char" not in found:
        return f"{METRICS_FILE} has no figure of held-out text; `redraft eval` measures it"
    return f"{found['valid_bits_per_char']:.4f} bits per character of held-out text{_above(found)}"


def format_brief(found: Mapping[str, Any]) -> str:
    """The same for a progress bar."""
    if "valid_reconstruction" in found:
        return f"held out {found['valid_reconstruction']:.1%} survive"
    above = f" ({found['valid_excess_bits_per_char']:+.3f})" if "valid_excess_bits_per_char" in found else ""
    return f"held out {found['valid_bits_per_char']:.3f} bits/char{above}"


def _above(found: Mapping[str, Any]) -> str:
    if "valid_excess_bits_per_char" in found and "valid_excess_stderr" in found:
        return f", {format_excess(found['valid_excess_bits_per_char'], found['valid_excess_stderr'])}"
    return ""


def format_excess(value: float, stderr: float) -> str:
    """The distance from the truth, as every command states it."""
    return f"{value:.4f} ± {stderr:.4f} above the truth"
