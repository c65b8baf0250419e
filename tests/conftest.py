"""What the tests share: one thread, the same examples at every run, tiny models, the chi-square test."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import settings
from tokenizers import models, pre_tokenizers
from torch import Tensor

from redraft.apps.cli import main, user_code
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
from redraft.decoding import Sampler, final_canvas
from redraft.models import (
    AttentionPattern,
    ConditionOnTime,
    DiffusionLM,
    DiffusionLMConfig,
    Full,
    Head,
    Subs,
    TimeConditioning,
    TransformerConfig,
)

pytest_plugins = ["tests.apps.server.served"]  # a second conftest would hide this one from `from conftest import …`
TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"  # numbers of the originals, see its README

os.environ.setdefault("REDRAFT_CACHE", str(Path(tempfile.gettempdir()) / "redraft-test-cache"))  # keyed by content
torch.set_num_threads(1)
choose_precision()  # before the first product: where bf16 traps, the tests of bf16 then run with fewer instructions
settings.register_profile("redraft", derandomize=True, database=None, deadline=None, max_examples=25)
settings.load_profile("redraft")


def table(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, but one test runs all rows, each as a subtest: for tables of bad values."""
    columns = (names,) if isinstance(names, str) else names

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            for row in rows:
                cells = (row,) if isinstance(names, str) else row
                with subtests.test(str(row)[:80]):
                    test(**fixtures, **dict(zip(columns, cells, strict=True)))

        taken = [p for p in signature(test).parameters.values() if p.name not in columns]
        keyword = Parameter.KEYWORD_ONLY
        parameters = [Parameter("subtests", keyword), *(p.replace(kind=keyword) for p in taken)]
        vars(run)["__signature__"] = Signature(parameters)
        return run

    return decorate


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
        pattern: AttentionPattern = Full(),
        network: TransformerConfig = tiny,
        *,
        process: Process = Masked(vocab),
        head: Head = Subs(),
        time_conditioning: TimeConditioning = ConditionOnTime(),
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
    ) -> DiffusionLM:
        config = DiffusionLMConfig(process, replace(network, pattern=pattern), head, time_conditioning)
        return randomize(DiffusionLM(config, tokenizer), seed)

    return model


@torch.no_grad()
def randomize(model: DiffusionLM, seed: int) -> DiffusionLM:
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
        together = final_canvas(sampler(model, model.process, canvas, rng=keys)).z
        assert canvas.context.pad is not None
        for i, size in enumerate((~canvas.context.pad).sum(-1).tolist()):
            alone = Canvas(canvas.z[i : i + 1, :size], canvas.fixed[i : i + 1, :size])
            single = final_canvas(sampler(model, model.process, alone, rng=Rng(keys.key[i : i + 1]))).z
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


def redraft_here(*words: object, given: str | None = None, where: Path = Path()) -> subprocess.CompletedProcess[str]:
    """What a process of its own would give, stdin and directory included; but here, where torch is loaded already."""
    out, err, kept, stdin, before = io.StringIO(), io.StringIO(), os.dup(0), sys.stdin, set(sys.modules)
    with tempfile.TemporaryFile() if given is not None else open(os.devnull, "rb+") as text:
        text.write((given or "").encode())
        text.flush()
        text.seek(0)
        os.dup2(text.fileno(), 0)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        code: object = 0
        try:
            with chdir(where), redirect_stdout(out), redirect_stderr(err):
                main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        finally:
            os.dup2(kept, 0)
            os.close(kept)
            sys.stdin = stdin
            for name in {Path(file).stem for file in user_code._IMPORTED} - before:
                sys.modules.pop(name, None)  # the next command is another process, which has imported nothing yet
    assert isinstance(code, int)
    return subprocess.CompletedProcess(["redraft", *map(str, words)], code, out.getvalue(), err.getvalue())


Pair = frozenset[tuple[int, int]]  # two factors, and the place of a value in each


def pairwise(*factors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Few rows in which any two values of different factors meet; always the same ones."""
    values = [(i, a) for i, factor in enumerate(factors) for a in range(len(factor))]
    pairs: list[Pair] = [frozenset((x, y)) for x, y in combinations(values, 2) if x[0] != y[0]]
    left, rows = dict.fromkeys(pairs), []
    while left:
        row = dict(next(iter(left)))  # the first pair that has not met; the other values meet as many as they can
        for i, factor in enumerate(factors):
            if i not in row:
                new = [sum(frozenset(((i, a), known)) in left for known in row.items()) for a in range(len(factor))]
                row[i] = new.index(max(new))
        for x, y in combinations(row.items(), 2):
            left.pop(frozenset((x, y)), None)
        rows.append(tuple(factor[row[i]] for i, factor in enumerate(factors)))
    return rows


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


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server with a random Llama of the name smol, as in docs/guides/clients.md; for tests/clients."""
    from tests.apps.server.served import serving
    from tests.apps.server.tiny_llama import write_tiny_llama

    with serving(write_tiny_llama(tmp_path_factory.mktemp("clients") / "smol")) as server:
        yield server.url
