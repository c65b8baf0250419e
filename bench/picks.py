"""`python -m bench.picks`: quality against tokens per forward for every pick, on the weights of `mdlm_tiny`.

Rows go to bench/results/curve.jsonl, from which `make results` draws docs/pictures/decoding.svg. It takes
about three minutes, plus the training of the model if it is not found under --runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.limit import machine
from bench.models import RUNS, trained
from bench.race import Row, tell
from bench.texts import by_sampler
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    Confidence,
    ConfidenceThreshold,
    Entropy,
    EntropyBound,
    FrechetProfile,
    Klass,
    LeftToRight,
    Margin,
    Sampler,
    Unmask,
    WideInNarrowOut,
)
from redraft.tasks import TextModel

RESULTS = Path(__file__).parent / "results" / "curve.jsonl"
STEPS = (8, 12, 17, 23, 34, 68)
CURVES: dict[str, list[tuple[str, Sampler]]] = {
    "ancestral": [(f"steps={n}", Ancestral(n)) for n in (16, 32, 64)],
    "any-order": [(f"steps={n}", Unmask(n, AnyOrder())) for n in STEPS],
    "left-to-right": [(f"steps={n}", Unmask(n, LeftToRight(1.0))) for n in STEPS],
    "confidence": [(f"steps={n}", Unmask(n, Confidence(1.0))) for n in STEPS],
    "margin": [(f"steps={n}", Unmask(n, Margin(1.0))) for n in STEPS],
    "entropy": [(f"steps={n}", Unmask(n, Entropy(1.0))) for n in STEPS],
    "threshold": [(f"threshold={c}", Unmask(None, ConfidenceThreshold(c, 1.0))) for c in (0.3, 0.5, 0.7, 0.9, 0.97)],
    "frechet": [(f"margin={m}", Unmask(None, FrechetProfile(m, 1.0))) for m in (-0.5, 0.0, 0.5)],
    "entropy-bound": [(f"bound={h}", Unmask(None, EntropyBound(h, 1.0))) for h in (0.02, 0.1, 0.3, 1.0, 2.0)],
    "klass": [(f"threshold={c}", Unmask(None, Klass(c, temperature=1.0))) for c in (0.5, 0.9)],
    "revoke": [(f"draft={c}", Unmask(None, WideInNarrowOut(c, temperature=1.0))) for c in (0.3, 0.6)],
}


def point(model: TextModel, pick: str, setting: str, sampler: Sampler, texts: int) -> Row:
    """One setting of a pick. Tokens per forward count the words of a text, not the end tokens behind it."""
    quality, record = by_sampler(model, sampler, texts)
    cost = {"nfe": round(record.nfe, 2), "tokens_per_forward": round(quality.tokens / record.nfe, 3)}
    return {"curve": pick, "setting": setting} | cost | quality.row


def rows(runs: Path, texts: int) -> Iterator[Row]:
    yield machine("python -m bench.picks") | {"precision": "fp32", "texts": texts}
    model = trained("mdlm_tiny", runs)
    for pick, settings in CURVES.items():
        yield from (point(model, pick, setting, sampler, texts) for setting, sampler in settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=RUNS, help="directory of the trained models")
    parser.add_argument("--texts", type=int, default=128, help="texts per point")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sys.exit(tell(rows(args.runs, args.texts), RESULTS))


if __name__ == "__main__":
    main()
