"""The trained models of the decoding benchmarks: presets, and the same with a vocabulary as large as users have.

What is not found in the directory is trained there first, as the run says; a training that was stopped goes on.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from redraft import presets
from redraft.runs import Optimiser, Run, vary
from redraft.text import Words
from redraft.train import fit
from redraft.write import Opened, opened

VOCAB = 8192  # ids, of which the stories need 375: output layer and draws cost what they cost with any text
RUNS = Path("runs/bench")


def mdlm_wide() -> Run:
    """`mdlm_tiny` with 4 layers × 256 and 8192 ids."""
    return _wide(presets.mdlm_tiny(), steps=500)


def ar_wide() -> Run:
    """The autoregressive model of the same size."""
    return _wide(presets.ar_tiny(), steps=300)


def _wide(run: Run, steps: int) -> Run:
    assert isinstance(run.tokenizer, Words)
    spare = (f"word{i}" for i in range(VOCAB - run.tokenizer.vocab.size))
    wide = vary.with_tokenizer(run, replace(run.tokenizer, words=(*run.tokenizer.words, *spare)))
    wide = vary.with_network(wide, width=256, layers=4)
    return replace(wide, optimiser=Optimiser(lr=2e-3, muon=0.005, warmup=40, floor=0.0, ema=0.99), steps=steps)


def run(name: str) -> Run:
    """The run of a model of this module, or of a preset."""
    made: Run = globals()[name]() if name in ("mdlm_wide", "ar_wide") else getattr(presets, name)()
    return made


def trained(name: str, runs: Path = RUNS) -> Opened:
    """The model, from a finished training in `runs`, or trained there now."""
    out, wanted = runs / name, run(name)
    if not (out / f"step-{wanted.steps:08d}").is_dir():
        print(f"training {name} into {out}", file=sys.stderr)
        fit(wanted, out, quiet=True)
    return opened(out)
