"""metrics.jsonl of a run: one JSON object per line, written during training.

    train_loss_bits_per_token     the training loss, such as the cross-entropy of masked tokens
    valid_bound_bits_per_token    upper bound on −log₂ p of held-out text per token; exact if the network is causal
    valid_bits_per_char           the same bound per character
    valid_excess_bits_per_char    valid_bits_per_char minus the true value on the same texts, if the truth is known
    valid_excess_stderr           the standard error of this difference

The first two cannot be compared, although both are bits per token: the training loss is in general not the bound.
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
    """Reads the records of a run's log, without a last line that is still being written."""
    file = out / METRICS_FILE
    return [parse_line(file, number, line) for number, line in enumerate(whole_lines(file), 1)]


def whole_lines(file: Path) -> list[bytes]:
    """Reads the complete lines of a log, with their newlines."""
    if not file.exists():
        return []
    try:
        return [line for line in read_bytes(file, 2**32).splitlines(keepends=True) if line.endswith(b"\n")]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}); restore or remove it") from error


def parse_line(file: Path, number: int, line: bytes) -> dict[str, Any]:
    """Parses one line of a log; raises if it is not a record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or type(record.get("step")) is not int or not all(map(_fits, record.items())):
        raise CheckpointError(f"{file}:{number} is not a training record; fix or remove this line")
    return record


def _fits(item: tuple[str, Any]) -> bool:
    """Whether the value has the right type: metrics are numbers."""
    name, value = item
    is_metric = name.startswith(("train_", "valid_", "entropy_", "tokens_per_"))
    return type(value) in (int, float) if is_metric else True


def latest_values(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the latest value of every metric, without the sample texts."""
    return {name: value for record in records for name, value in record.items() if name != "samples"}


BEST = "best"  # directory in that of a run, with the checkpoint whose held-out bits are lowest
_RISE = 0.01  # held-out bits that are higher by this fraction are a rise; less may be noise


def best_record(records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the evaluation with the lowest held-out bits, the first of equal ones; None without an evaluation."""
    measured = [record for record in records if "valid_bits_per_char" in record]
    return min(measured, key=lambda record: record["valid_bits_per_char"], default=None)


def overfitting(records: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns the best and the last evaluation if held-out bits have risen between them; else None."""
    best = best_record(records)
    last = next((record for record in reversed(records) if "valid_bits_per_char" in record), None)
    if best is None or last is None or last["valid_bits_per_char"] <= (1 + _RISE) * best["valid_bits_per_char"]:
        return None
    return best, last


def format_overfitting(best: Mapping[str, Any], last: Mapping[str, Any]) -> str:
    """Says from which evaluation on held-out bits rose."""
    before, after = best["valid_bits_per_char"], last["valid_bits_per_char"]
    return f"held-out bits per character rose from {before:.3f} at step {best['step']:,} to {after:.3f}: it overfits"


def format_heldout(metrics: Mapping[str, Any]) -> str:
    """Describes in words how well a model, or a codec alone, does on held-out text."""
    if "valid_reconstruction" in metrics:
        return f"{metrics['valid_reconstruction']:.1%} of held-out tokens survive the codec"
    if "valid_bits_per_char" not in metrics:
        return f"{METRICS_FILE} has no held-out metrics; `redraft eval` measures them"
    return f"{metrics['valid_bits_per_char']:.4f} bits per character of held-out text{_above(metrics)}"


def format_brief(metrics: Mapping[str, Any]) -> str:
    """Returns a short form of `format_heldout` for the progress bar."""
    if "valid_reconstruction" in metrics:
        return f"held out {metrics['valid_reconstruction']:.1%} survive"
    above = f" ({metrics['valid_excess_bits_per_char']:+.3f})" if "valid_excess_bits_per_char" in metrics else ""
    return f"held out {metrics['valid_bits_per_char']:.3f} bits/char{above}"


def _above(metrics: Mapping[str, Any]) -> str:
    if "valid_excess_bits_per_char" in metrics and "valid_excess_stderr" in metrics:
        return f", {format_excess(metrics['valid_excess_bits_per_char'], metrics['valid_excess_stderr'])}"
    return ""


def format_excess(value: float, stderr: float) -> str:
    """Formats the excess over the truth with its standard error, in the wording that all commands share."""
    return f"{value:.4f} ± {stderr:.4f} above the truth"
