"""What the tests share: one thread, the same examples at every run, tiny models, the chi-square test."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import settings
from tokenizers import models, pre_tokenizers
from torch import Tensor

from redraft.apps.cli import main
from redraft.core import (
    Canvas,
    Context,
    Masked,
    Precision,
    PrecisionError,
    Process,
    Rng,
    Tokenizer,
    Vocab,
    choose_precision,
    rng,
)
from redraft.decoding import Sampler, last
from redraft.models import ByTime, DiffusionLM, DiffusionLMConfig, Full, Head, Level, Pattern, Subs, TransformerConfig

pytest_plugins = ["tests.apps.server.served"]  # a second conftest would hide this one from `from conftest import …`
TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"  # numbers of the originals, see its README

torch.set_num_threads(1)
choose_precision()  # before the first product: where bf16 traps, the tests of bf16 then run with fewer instructions
settings.register_profile("redraft", derandomize=True, database=None, deadline=None, max_examples=25)
settings.load_profile("redraft")


@pytest.fixture(scope="session")
def bf16() -> Precision:
    """Tests that take it compute in bf16, however slow it is; where it does not work at all they are skipped."""
    try:
        return choose_precision("bf16")
    except PrecisionError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def vocab() -> Vocab:
    """Six tokens and the mask."""
    return Vocab(7, mask=6)


@pytest.fixture(scope="session")
def tiny(vocab: Vocab) -> TransformerConfig:
    """A network of two layers; variants are `replace(tiny, ...)`."""
    return TransformerConfig(width=16, layers=2, heads=2, hidden=32)


Build = Callable[..., DiffusionLM]


@pytest.fixture(scope="session")
def build(vocab: Vocab, tiny: TransformerConfig) -> Build:
    """A model whose weights are all random: nothing is hidden by a zero."""

    def model(
        pattern: Pattern = Full(),
        network: TransformerConfig = tiny,
        *,
        process: Process = Masked(vocab),
        head: Head = Subs(),
        level: Level = ByTime(),
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
    ) -> DiffusionLM:
        config = DiffusionLMConfig(process, replace(network, pattern=pattern), head, level)
        return randomise(DiffusionLM(config, tokenizer), seed)

    return model


@torch.no_grad()
def randomise(model: DiffusionLM, seed: int) -> DiffusionLM:
    """Norms around one, matrices so that every layer matters."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 1:
            p.copy_((1.0 if "norm" in name and name.endswith("weight") else 0.0) + 0.1 * noise)
        else:
            p.copy_(noise * (1.0 if "embedding" in name else p.shape[1] ** -0.5))
    return model


@pytest.fixture(scope="session")
def p_value() -> Callable[[Tensor, Tensor], float]:
    """Pearson's chi-square test of observed counts against expected ones."""

    def test(observed: Tensor, expected: Tensor) -> float:
        observed, expected = observed.double().flatten(), expected.double().flatten()
        assert observed.shape == expected.shape
        assert expected.min() >= 5, "the test needs five expected draws in each cell"
        statistic = ((observed - expected) ** 2 / expected).sum()
        freedom = torch.tensor(len(expected) - 1.0, dtype=torch.float64)
        return float(torch.special.gammaincc(freedom / 2, statistic / 2))

    return test


@pytest.fixture(scope="session")
def ragged(vocab: Vocab) -> Callable[[int, int, int], Canvas]:
    """Rows of all lengths: a prompt, holes, given tokens between them, padding at the end."""

    def canvas(rows: int, length: int, seed: int) -> Canvas:
        g = torch.Generator().manual_seed(seed)
        z = torch.randint(0, vocab.masked, (rows, length), generator=g)
        place, size = torch.arange(length), torch.randint(1, length + 1, (rows, 1), generator=g)
        prompt = place < torch.randint(0, length // 2, (rows, 1), generator=g)
        pad = place >= size
        return Canvas(z, prompt | pad | (torch.rand(rows, length, generator=g) < 0.15), Context(pad=pad))

    return canvas


@pytest.fixture(scope="session")
def assert_promises() -> Callable[[Sampler, DiffusionLM, Canvas, Rng], Canvas]:
    """What every sampler promises at each canvas and at the last one, which is returned."""

    def run(sampler: Sampler, model: DiffusionLM, canvas: Canvas, keys: Rng) -> Canvas:
        given = canvas.z[canvas.fixed].clone()
        for written in sampler(model, model.process, canvas, rng=keys):
            assert torch.equal(written.z[canvas.fixed], given), "given tokens and padding never change"
            assert torch.is_grad_enabled(), "the caller's grad mode is its own"
        assert model.config.vocab.mask not in written.z[~canvas.fixed].tolist(), "no mask is left"
        return written

    return run


@pytest.fixture(scope="session")
def assert_rows_alone(ragged: Callable[[int, int, int], Canvas]) -> Callable[[Sampler, DiffusionLM], None]:
    """A row of a batch of 100 is written as it would be alone, without its padding."""

    def compare(sampler: Sampler, model: DiffusionLM) -> None:
        canvas, keys = ragged(100, 9, 1), rng(7, 100)
        together = last(sampler(model, model.process, canvas, rng=keys)).z
        assert canvas.context.pad is not None
        for i, size in enumerate((~canvas.context.pad).sum(-1).tolist()):
            alone = Canvas(canvas.z[i : i + 1, :size], canvas.fixed[i : i + 1, :size])
            single = last(sampler(model, model.process, alone, rng=Rng(keys.key[i : i + 1]))).z
            assert single[0].tolist() == together[i, :size].tolist(), f"row {i}"

    return compare


Say = Callable[..., tuple[str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command within this process, where torch is loaded already: its stdout and stderr."""

    def run_it(*argv: object, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        try:
            main([str(word) for word in argv])
            ended: object = 0
        except SystemExit as end:
            ended = end.code
        out, err = capsys.readouterr()
        assert ended == code, err
        return out, err

    return run_it


WORDS = "the a The weather today is was and sun rain wind snow warm cold dark light morning evening day night we they"


@pytest.fixture(scope="session")
def published() -> Callable[..., None]:
    """Puts into a folder what one downloads of a model, in small: golden weights, and a tokenizer of as many words."""

    def put(folder: Path, name: str = "mdlm") -> None:
        shutil.copytree(GOLDEN / name, folder)
        words = ["[UNK]", *WORDS.split(), *(f"word{i}" for i in range(40))][: 40 if name == "mdlm" else 39]
        tokenizer = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.add_special_tokens([] if name == "mdlm" else ["</s>"])
        tokenizer.save(str(folder / "tokenizer.json"))

    return put


@pytest.fixture
def interpreted() -> Iterator[None]:
    """flex_attention without its compiler, which takes seconds for every new shape."""
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile", UserWarning)
        yield
