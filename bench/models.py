"""The trained models of the decoding benchmarks: tiny presets, and copies with a vocabulary of realistic size.

Models that are not in the directory are trained there first, as the preset says; an interrupted training continues.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from redraft.core import WordTokenizer
from redraft.models import DiffusionLM
from redraft.tasks import TextModel, open_model
from redraft.training import fit, presets
from redraft.training.runs import variations

VOCAB = 8192  # ids: the stories use 375 of them
NEVER = -30.0  # logit of an id that no text has
RUNS = Path("runs/bench")


def trained(name: str, runs: Path = RUNS) -> TextModel:
    """A preset on the stories, from a finished training in `runs`, or trained there now."""
    out, wanted = runs / name, getattr(presets, name)()
    if not (out / f"step-{wanted.steps:08d}").is_dir():
        print(f"training {name} into {out}", file=sys.stderr)
        fit(wanted, out, quiet=True)
    return open_model(out)


def widened(source: TextModel, size: int = VOCAB) -> TextModel:
    """The same model with a vocabulary of `size` ids, the rest of which never occur.

    It says of every text what it said before, but output layer and draws cost what they cost with a real vocabulary.
    """
    assert source.run is not None
    assert isinstance(source.run.tokenizer, WordTokenizer)
    words, spare = source.run.tokenizer, size - source.run.tokenizer.vocab.size
    tokenizer = replace(words, words=(*words.words, *(f"never{i}" for i in range(spare))))
    run = variations.with_network(source.run.with_tokenizer(tokenizer), head_bias=True)
    model = DiffusionLM(run.model, tokenizer)
    number = torch.arange(words.vocab.size)
    number = torch.where(number < len(words.words), number, number + spare)  # the special ids come last
    held = source.lm.state_dict() | {"network.output.bias": torch.zeros(words.vocab.size)}
    model.load_state_dict({name: _spread(held[name], value, number) for name, value in model.state_dict().items()})
    return TextModel(model.eval(), run)


def _spread(held: Tensor, like: Tensor, number: Tensor) -> Tensor:
    """The weights of all ids from those of some; the others are never likely."""
    if held.shape == like.shape:
        return held
    wide = torch.full_like(like, NEVER if like.dim() == 1 else 0.0)
    return wide.index_copy(0, number, held)
