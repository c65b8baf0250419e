"""Text and canvases are composed without a network."""

from __future__ import annotations

import pytest
import torch

from redraft.core import CharTokenizer, Insertion, Masked, Special
from redraft.models import VariableHole
from redraft.models.canvas_builder import _CanvasBuilder, _parse_template, _prompt_mask, text_positions

ALL: tuple[Special, ...] = ("bos", "eos", "pad", "mask")
LETTERS = CharTokenizer("abcd", ALL)
VOCAB = LETTERS.vocab
A, B, C, D = LETTERS.encode("abcd")
CPU = torch.device("cpu")


def test_a_template_is_texts_and_holes() -> None:
    assert _parse_template("a[[3]]b[[*]]", room=7) == ["a", 3, "b", VariableHole(7), ""]


def test_rows_are_padded_and_holes_before_given_text_are_inside() -> None:
    canvas = _CanvasBuilder(Masked(VOCAB), LETTERS, None).canvas([["a", 1, "b", 1], ["c"]], None, CPU)
    bos, mask, pad = VOCAB.bos, VOCAB.mask, VOCAB.filler
    assert canvas.z.tolist() == [[bos, A, mask, B, mask], [bos, C, pad, pad, pad]]
    assert (~canvas.fixed).nonzero().tolist() == [[0, 2], [0, 4]]
    assert canvas.context.constraints.no_end_token is not None
    assert canvas.context.constraints.no_end_token.nonzero().tolist() == [[0, 2]]
    assert canvas.context.pad is not None
    assert canvas.context.pad.sum(-1).tolist() == [0, 3]
    assert _prompt_mask(canvas, VOCAB).nonzero().tolist() == [[0, 1], [0, 3], [1, 1]]
    assert canvas.open is None


@pytest.mark.parametrize(("positions", "room"), [(None, 6), (6, 2)])
def test_gaps_share_room_at_the_end_as_far_as_positions_go(positions: int | None, room: int) -> None:
    canvas = _CanvasBuilder(Insertion(VOCAB), LETTERS, positions).canvas(
        [["a", VariableHole(4), "b", VariableHole(2)]], None, CPU
    )
    assert canvas.z.shape[1] == 3 + room
    assert canvas.open is not None
    assert canvas.open.nonzero()[:, 1].tolist() == [2, 3]  # before b, and after it


def test_content_stands_between_source_and_end() -> None:
    canvas = _CanvasBuilder(Masked(VOCAB), LETTERS, None).canvas([["ab", 3]], ["cd"], CPU)
    assert canvas.z[0, :5].tolist() == [C, D, VOCAB.bos, A, B]
    canvas.z[0, 5:] = torch.tensor([D, VOCAB.eos, C])
    assert canvas.z[0, text_positions(canvas, VOCAB, 0)].tolist() == [A, B, D]


def test_sources_end_in_the_end_token() -> None:
    ids, pad = _CanvasBuilder(Masked(VOCAB), LETTERS, None).sources(["ab", ""], CPU)
    assert ids.tolist() == [[A, B, VOCAB.eos], [VOCAB.eos, VOCAB.filler, VOCAB.filler]]
    assert pad.tolist() == [[False] * 3, [False, True, True]]
    plain = CharTokenizer("abcd", ("mask",))
    with pytest.raises(ValueError, match="needs a tokenizer with an end token"):
        _CanvasBuilder(Masked(plain.vocab), plain, None).sources(["ab"], CPU)
