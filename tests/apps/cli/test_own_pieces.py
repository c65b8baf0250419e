"""A pick, a corpus and a codec of the user's own: one file, which no file of the package knows, used from the shell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Say = Callable[..., tuple[str, str]]

PIECES = '''
import math
from dataclasses import dataclass, replace

import torch

import redraft
from redraft import presets
from redraft.core import Pick, PickResult
from redraft.models import Codec, CodecConfig


@dataclass(frozen=True)
class RightToLeft(Pick):
    """Reveals the rightmost hidden position, as its most likely token."""

    writes_once, draws_exactly = True, False

    def __call__(self, pred, canvas, hidden, share, *, rng):
        where = hidden & (hidden.flip(-1).cumsum(-1).flip(-1) == 1)
        return PickResult.of(where, pred.draw(where, rng=rng, temperature=0))


@dataclass(frozen=True)
class Counting:
    """Texts of three numbers that follow each other."""

    def document(self, split, index):
        return " ".join(str(index % 7 + i) for i in range(3))


@dataclass(frozen=True)
class Ring(CodecConfig):
    """Tokens are points in the plane, on a circle at first."""

    radius: float = 1.0
    names = True  # every token has its own vector

    def vectors(self, vocab):
        return 2

    def build(self, vocab):
        return RingCodec(self, vocab.size)


class RingCodec(Codec):
    width = 2

    def __init__(self, config, size):
        super().__init__()
        angle = torch.arange(size) * 2 * math.pi / size
        self.points = torch.nn.Parameter(config.radius * torch.stack([angle.cos(), angle.sin()], -1))

    @property
    def table(self):
        return self.points

    def encode(self, tokens, pad=None):
        return self.points[tokens]

    def logits(self, z):
        return z @ self.points.T

    def nll(self, z, tokens, pad=None):
        return -self.logits(z).log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)

    def decode(self, z):
        return self.logits(z).argmax(-1)


def run():
    tiny = presets.diffusion_lm_tiny()
    return replace(tiny, model=replace(tiny.model, codec=Ring()))
'''


def test_own_pick_corpus_and_codec_are_used_from_the_command_line(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "pieces.py"
    file.write_text(PIECES, "utf-8")
    quick = ("--steps", 2, "--batch", 2, "--samples", 0, "--eval-rows", 2, "--quiet")

    words = ("generate", "story", "--sampler", f"{file}:RightToLeft", "--max-new-tokens", 5, "--json")
    (line,) = say(*words)[0].splitlines()
    assert "RightToLeft()" in json.loads(line)["sampler"]
    assert all(law.endswith("ok") or "ok" in law for law in say("check", file)[0].splitlines() if "RightToLeft" in law)

    data = ("--data", f"{file}:Counting", "--tokenizer", "words")
    say("train", "mdlm_tiny", *data, *quick, "--out", tmp_path / "counts")
    written = say("generate", tmp_path / "counts", "--trust", file, "--max-new-tokens", 3)[0]
    assert set(written.split()) <= {str(number) for number in range(10)}

    say("train", f"{file}:run", *quick, "--out", tmp_path / "ring")
    assert say("generate", tmp_path / "ring", "--trust", file, "--max-new-tokens", 3)[0].strip()


def test_wrong_pieces_are_errors_of_one_line(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "wrong_pieces.py"
    file.write_text("class Nothing:\n    pass\n\n\ndef breaks():\n    raise KeyError('oh')\n", "utf-8")
    for words, message in (
        (("generate", "story", "--sampler", f"{file}:Nothing"), "derived from redraft.Sampler or Pick"),
        (("generate", "story", "--sampler", f"{file}:Other"), "has no 'Other'"),
        (("generate", "story", "--sampler", f"{file}:breaks"), "raised KeyError: 'oh'"),
        (("train", "mdlm_tiny", "--data", f"{file}:Nothing"), "neither the method documents nor document"),
    ):
        out, error = say(*words, code=2)
        assert (out, len(error.splitlines())) == ("", 1)
        assert message in error
