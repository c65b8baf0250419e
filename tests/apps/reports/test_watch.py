"""What is shown while a text is being written is what the canvases hold, token by token."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import Tensor

from redraft.apps import (
    Frame,
    display,
    frames,
)
from redraft.apps.reports.watch import (
    styled,
)
from redraft.core import ByteTokenizer, Canvas, CharTokenizer, Context, Masked, Tokenizer, WordTokenizer, rng
from redraft.decoding import Ancestral, Blocks, Sampler, Unmask
from redraft.models import BlockCausal, Causal, DiffusionLM

WORDS = WordTokenizer(("a", "cat", "sat", "."))  # ids 0..3, unknown 4, eos 5, pad 6, mask 7
Build = Callable[..., DiffusionLM]


@pytest.fixture
def model(build: Build, tiny: object) -> Callable[..., DiffusionLM]:
    def make(tokenizer: Tokenizer = WORDS, **more: object) -> DiffusionLM:
        network = tiny
        return build(network=network, process=Masked(tokenizer.vocab), tokenizer=tokenizer, **more)

    return make


def canvas(ids: list[int], given: list[int] = [], pad: list[int] = [], **more: Tensor) -> Canvas:  # noqa: B006
    place = torch.arange(len(ids))
    fixed, empty = (torch.isin(place, torch.tensor(at, dtype=torch.int64))[None] for at in ([*given, *pad], pad))
    return Canvas(torch.tensor([ids]), fixed, Context(pad=empty if pad else None), **more)


def short(frame: Frame) -> list[tuple[str, str]]:
    return [(token.text, token.state) for token in frame.tokens]


def test_a_token_is_given_noise_new_or_settled(model: Callable[..., DiffusionLM]) -> None:
    steps = [canvas(ids, given=[0]) for ids in ([0, 7, 7, 7], [0, 7, 2, 7], [0, 1, 2, 7], [0, 1, 2, 7], [0, 1, 2, 3])]
    found = list(frames(steps, model()))
    assert [frame.step for frame in found] == [0, 1, 2, 3, 4]
    assert short(found[0]) == [("a", "given"), (" ▒", "noise"), (" ▒", "noise"), (" ▒", "noise")]
    assert short(found[1]) == [("a", "given"), (" ▒", "noise"), (" sat", "new"), (" ▒", "noise")]
    assert short(found[2]) == [("a", "given"), (" cat", "new"), (" sat", "settled"), (" ▒", "noise")]
    assert short(found[3]) == [("a", "given"), (" cat", "settled"), (" sat", "settled"), (" ▒", "noise")]
    assert short(found[4]) == [("a", "given"), (" cat", "settled"), (" sat", "settled"), (".", "new")]
    assert found[4].text == "a cat sat."


def test_without_a_mask_tokens_change_or_stay(model: Callable[..., DiffusionLM]) -> None:
    steps = [canvas(ids) for ids in ([3, 1, 0], [0, 1, 0], [0, 1, 2])]
    states = [[state for _, state in short(frame)] for frame in frames(steps, model())]
    assert states == [["noise"] * 3, ["new", "settled", "settled"], ["settled", "settled", "new"]]


def test_after_the_end_only_noise_is_shown(model: Callable[..., DiffusionLM]) -> None:
    steps = [canvas(ids) for ids in ([7, 7, 7, 7], [0, 5, 7, 1], [0, 5, 5, 1])]
    found = list(frames(steps, model()))
    assert [(t.text, t.position) for t in found[1].tokens] == [("a", 0), (" ▒", 2)]
    assert short(found[2]) == [("a", "settled")]


def test_signs_and_padding_have_no_token(model: Callable[..., DiffusionLM]) -> None:
    signs = WordTokenizer(("a", "cat"), ("bos", "eos", "pad", "mask"))  # unknown 2, bos 3, eos 4, pad 5, mask 6
    (frame,) = frames([canvas([3, 0, 6, 5], given=[0, 1], pad=[3])], model(signs))
    assert short(frame) == [("a", "given"), (" ▒", "noise")]


def test_insertion_moves_what_is_written(model: Callable[..., DiffusionLM]) -> None:
    def grown(ids: list[int], given: list[int], size: int) -> Canvas:
        pad = list(range(size, 5))
        full = canvas(ids + [6] * len(pad), given, pad, open=torch.ones(1, 6, dtype=torch.bool))
        return replace(full, fixed=torch.isin(torch.arange(5), torch.tensor(given))[None])

    steps = [grown([3], [0], 1), grown([7, 3], [1], 2), grown([7, 2, 3], [2], 3), grown([0, 7, 2, 3], [3], 4)]
    found = [short(frame) for frame in frames(steps, model())]
    assert found[0] == [(".", "given")]
    assert found[1] == [("▒", "noise"), (".", "given")]
    assert found[2] == [("▒", "noise"), (" sat", "new"), (".", "given")]
    assert found[3] == [("a", "new"), (" ▒", "noise"), (" sat", "settled"), (".", "given")]


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), CharTokenizer("é€x")], ids=["bytes", "characters"])
def test_a_character_of_several_tokens_is_shown_once(model: Callable[..., DiffusionLM], tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("xé€x")
    (frame,) = frames([canvas(ids)], model(tokenizer))
    assert len(frame.tokens) == len(ids)
    assert frame.text == "xé€x"
    assert [token.text for token in frame.tokens if token.text] == ["x", "é", "€", "x"]


@pytest.mark.parametrize(
    ("pattern", "sampler"),
    [
        (None, Ancestral(7)),
        (None, Unmask(4)),
        (BlockCausal(3), Blocks(Ancestral(5), stop=True)),
        (Causal(WORDS.vocab.masked), Blocks(Ancestral(1), stop=True)),
    ],
    ids=["ancestral", "unmask", "blocks", "causal"],
)
def test_frames_of_real_samplers(model: Callable[..., DiffusionLM], pattern: object, sampler: Sampler) -> None:
    """Every text is the canvas's; mask noise writes a position once and never takes it back."""
    it = model(**({} if pattern is None else {"pattern": pattern}))
    start = it.canvas(["a cat", "sat"], new=6)
    canvases = list(sampler(it, it.process, start, rng=rng(3, 2)))
    for row in (0, 1):
        found = list(frames(canvases, it, row))
        assert found[-1].text == it.text(canvases[-1])[row]
        assert {token.state for token in found[0].tokens} == {"given", "noise"}
        assert all(t.state == "given" for frame in found for t in frame.tokens if t.position < 2 - row)
        news = [token.position for frame in found for token in frame.tokens if token.state == "new"]
        assert len(news) == len(set(news))
        assert "noise" not in {token.state for token in found[-1].tokens}


def test_elsewhere_than_in_a_terminal_each_change_is_a_line(model: Callable[..., DiffusionLM]) -> None:
    steps = [canvas(ids) for ids in ([7, 7], [7, 7], [7, 1], [7, 1], [0, 1])]
    out = io.StringIO()
    end = display(iter(steps), model(), console=Console(file=out, width=4), delay=0)
    assert out.getvalue().splitlines() == ["▒ ▒", "▒ cat", "a cat"]
    assert end is steps[-1]


def test_line_breaks_and_markup_are_text(model: Callable[..., DiffusionLM]) -> None:
    letters = CharTokenizer("[b]\n")
    out = io.StringIO()
    display([canvas(letters.encode("[b]\n[b]"))], model(letters), console=Console(file=out), delay=0)
    assert out.getvalue() == "[b]↵[b]\n"


def test_in_a_terminal_it_is_drawn_in_place(model: Callable[..., DiffusionLM]) -> None:
    steps = [canvas(ids, given=[0]) for ids in ([0, 7, 7], [0, 1, 7], [0, 1, 2])]
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=40)
    assert display(steps, model(), console=console, delay=0) is steps[-1]
    drawn = out.getvalue()
    assert "\x1b[36ma\x1b[0m\x1b[1;32m cat\x1b[0m\x1b[2m ▒\x1b[0m" in drawn  # given, new, noise
    assert "\x1b[36ma\x1b[0m cat\x1b[1;32m sat\x1b[0m" in drawn  # settled is plain
    assert drawn.rstrip().endswith("\x1b[2K")  # and is taken away: the text itself is printed


def test_styles_cover_the_text(model: Callable[..., DiffusionLM]) -> None:
    *_, end = frames([canvas([7, 7]), canvas([0, 1])], model())
    assert styled(end).plain == end.text == "a cat"


def test_without_tokenizer_there_is_nothing_to_see(build: Build) -> None:
    with pytest.raises(ValueError, match="no tokenizer"):
        list(frames([canvas([0])], build()))
