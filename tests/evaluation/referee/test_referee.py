"""The referee passes what is right and catches what is wrong; the table of verdicts is what the examples give."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import redraft_here

from redraft.apps.cli.commands.measure.audit_child import _blame
from redraft.apps.cli.user_code import load_module
from redraft.evaluation import AuditEffort, AuditLogProb, AuditLoss, AuditProcess, AuditSampler, audit
from redraft.evaluation.referee.auditing import audited_in
from redraft.evaluation.referee.denoisers import _AuditDenoiser
from redraft.evaluation.referee.insertions import _InsertionDenoiser
from redraft.evaluation.referee.languages import _audit_languages, _growing_language
from redraft.evaluation.referee.losses import _measure
from redraft.evaluation.referee.reference import _any_order_probability

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "audit").glob("*.py"))
QUICK = AuditEffort(batch=4096, draws=30_000, resolution=0.3)
PAGE = (ROOT / "docs" / "templates" / "audit.md").read_text("utf-8")
LINES = (ROOT / "recipes" / "results" / "audits.jsonl").read_text("utf-8").splitlines()
ROWS = {row["name"]: row for row in map(json.loads, LINES)}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_table_of_verdicts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With less effort than on the page, no verdict turns."""
    monkeypatch.delitem(sys.modules, file.stem, raising=False)  # a recipe of this name, imported by another test
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if Path(folder).name != "recipes"])
    (audited,) = audited_in(load_module(file))
    failed = any(verdict.passed is False for verdict in audit(audited, QUICK))
    assert failed == (not ROWS[file.stem]["passed"])


def test_every_example_is_explained() -> None:
    explained = re.findall(r"^- `(\w+)`: ", PAGE, re.MULTILINE)
    assert sorted(ROWS) == sorted(explained) == [file.stem for file in EXAMPLES]
    assert all(row["exit_code"] == (not row["passed"]) for row in ROWS.values())


def test_a_wrong_weight_that_only_a_wrong_denoiser_shows() -> None:
    """Entropy-weighted loss: exact for the exact denoiser, no bound for an overconfident one."""

    def half(x, denoise, rng):  # type: ignore[no-untyped-def]
        n = torch.randint(1, x.shape[1] + 1, (len(x), 1), generator=rng)
        masked = torch.rand(x.shape, generator=rng).argsort(-1).argsort(-1) < n
        log_p = denoise(x.masked_fill(masked, denoise.mask))
        entropy = -(log_p.exp() * log_p.clamp(min=-1e5)).sum(-1)
        return (entropy * masked * x.shape[1] / n).sum(-1)

    (verdict,) = audit(half, QUICK)
    assert verdict.answer == "not a bound"
    assert "overconfident" in verdict.evidence or "Kraft" in verdict.evidence or "exp(−loss)" in verdict.evidence


def test_a_schedule_and_numpy() -> None:
    def scheduled(x, denoise, rng: np.random.Generator, schedule):  # type: ignore[no-untyped-def]
        t = torch.from_numpy(rng.random((len(x), 1))).clamp(1e-4)
        masked = (rng.random(x.shape) < 1 - schedule.keep(t).numpy()) & (x == x)
        log_p = np.take_along_axis(denoise(np.where(masked, denoise.mask, x)), x[..., None], -1)[..., 0]
        weight = (-schedule.slope(t) / (1 - schedule.keep(t))).numpy()
        return -(log_p * masked * weight).sum(-1)

    answers = [verdict.answer for verdict in audit(scheduled, QUICK)]
    assert answers[0] == "a bound"
    assert answers[-1] == "the same under every schedule"


def test_one_text_per_call_and_fewer_steps_than_are_asked_for() -> None:
    def left_to_right(denoise, length, rng):  # type: ignore[no-untyped-def]
        z = torch.full((length,), denoise.mask)
        for l in range(length):
            z[l] = torch.multinomial(denoise(z)[l].exp(), 1, generator=rng)
        return z

    def unfinished(denoise, length, rng, rows):  # type: ignore[no-untyped-def]
        return torch.full((rows, length), denoise.mask)

    assert audit(left_to_right, AuditEffort(draws=600))[-1].passed
    assert "100.0% of texts still have masks" in audit(unfinished, QUICK)[-1].evidence


class OnlyDlpack:
    """An array of another framework, which has no `__array__`."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values, self.shape = values, values.shape

    def __dlpack__(self, **options: object) -> object:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> object:
        return self.values.__dlpack_device__()


class OnlyArray:
    """An array like those of JAX: `__array__` and the namespace of the array API."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.values

    def __array_namespace__(self) -> object:
        return type("space", (), {"asarray": OnlyArray})


def test_arrays_of_any_framework() -> None:
    """The denoiser answers in the kind of array it is given; results come by DLPack or `__array__`."""
    kinds = []

    def loss(x, denoise, rng):  # type: ignore[no-untyped-def]
        t = torch.rand(len(x), 1, generator=rng)
        masked = torch.rand(x.shape, generator=rng) < t
        log_p = denoise(OnlyArray(x.masked_fill(masked, denoise.mask).numpy()), OnlyDlpack(t))
        kinds.append(type(log_p))
        nll = -torch.from_numpy(log_p.values).gather(-1, x[..., None]).squeeze(-1)
        return OnlyDlpack(((nll * masked) / t).sum(-1).bfloat16() if len(kinds) < 2 else ((nll * masked) / t).sum(-1))

    assert audit(loss, QUICK)[0].answer == "a bound"
    assert set(kinds) == {OnlyArray}
    with pytest.raises(ValueError, match=r"the result of <lambda> must be an array of numbers; got object") as error:
        audit(AuditLoss(lambda x, denoise, rng: object()), QUICK)
    assert "\n" not in str(error.value)


def test_one_time_for_a_whole_batch() -> None:
    """Rows that share random numbers are judged by many small calls."""

    def shared(x, denoise, rng):  # type: ignore[no-untyped-def]
        n = torch.randint(1, x.shape[1] + 1, (1,), generator=rng)
        masked = (torch.rand(x.shape[1], generator=rng).argsort().argsort() < n).expand(x.shape)
        log_p = denoise(x.masked_fill(masked, denoise.mask)).gather(-1, x[..., None]).squeeze(-1)
        return -(log_p * masked).sum(-1) * x.shape[1] / n

    denoise = _AuditDenoiser(_audit_languages()[1])
    right = _measure(shared, denoise, QUICK, {})
    assert right.proven
    assert right.mean.precise
    assert _measure(lambda x, denoise, rng: shared(x, denoise, rng) * 0.7, denoise, QUICK, {}).broken


def test_an_infinite_variance_is_undecided() -> None:
    def heavy(x, denoise, rng):  # type: ignore[no-untyped-def]
        t = torch.rand(len(x), 1, generator=rng).sqrt()  # the density 2t, most where the weight is small
        masked = torch.rand(x.shape, generator=rng) < t
        log_p = denoise(x.masked_fill(masked, denoise.mask)).gather(-1, x[..., None]).squeeze(-1)
        return -(log_p * masked / t).sum(-1) / (2 * t[:, 0])

    def heavy_estimate(x, denoise, rng):  # type: ignore[no-untyped-def]
        return -heavy(x, denoise, rng)

    few = AuditEffort(batch=4096, rows=50_000, resolution=0.02)
    for subject in (heavy, AuditLogProb(heavy_estimate)):
        verdict = audit(subject, few)[0]  # type: ignore[arg-type]
        assert (verdict.answer, verdict.passed) == ("undecided at this error", False)
        assert "draw more times where the weight is large" in verdict.evidence


def test_a_doubtful_sampler_is_tested_with_more_texts() -> None:
    """A temperature of 0.97 is found."""

    def cool(denoise, length, rng, rows):  # type: ignore[no-untyped-def]
        z = torch.full((rows, length), denoise.mask)
        for l in range(length):
            z[:, l] = torch.multinomial((denoise(z)[:, l] / 0.97).softmax(-1), 1, generator=rng)[:, 0]
        return z

    assert audit(cool)[-1].answer == "not exact"


def test_float_bits_make_the_difference() -> None:
    """The example of float32 noise is exact with as many bits as float64 has."""
    gumbel = load_module(ROOT / "examples" / "audit" / "gumbel_float32.py").gumbel_float32

    def exact(denoise, length, rng, rows, steps):  # type: ignore[no-untyped-def]
        return gumbel(denoise, length, rng, rows, steps, bits=53)

    assert audit(exact, replace(QUICK, draws=10_000))[-1].passed


def test_insertions() -> None:
    """The denoiser of texts that grow is exact by enumeration; wrong weights, rows and gaps are noticed."""
    denoise = _InsertionDenoiser(_growing_language(), lambda t: t)
    toy, mask, pad = denoise.language.toy, denoise.mask, denoise.pad
    log_p, gaps = denoise(torch.tensor([[mask, pad, pad], [pad, pad, pad]]), 1.0)
    lengths = (toy.sequences != pad).sum(-1)
    assert float(gaps[1, 0]) == pytest.approx(float(toy.p @ lengths.double()), rel=1e-6)
    zeros = (toy.sequences == 0).sum(-1).double()  # each word of a text is equally likely to be the one that is present
    assert float(log_p[0, 0].exp()[0]) == pytest.approx(float(toy.p @ zeros / (toy.p @ lengths.double())), rel=1e-6)
    assert float(log_p[0, 1, pad]) == 0

    def only_words(x, denoise, rng):  # type: ignore[no-untyped-def]
        lost = denoise(torch.where(x == denoise.pad, x, denoise.mask), 0.5)[0].gather(-1, x[..., None]).squeeze(-1)
        return -lost.sum(-1)

    assert audit(AuditLoss(only_words, missing=lambda t: t), QUICK)[0].answer == "not a bound"
    with pytest.raises(ValueError, match="must be packed to the left"):
        denoise(torch.tensor([[pad, 0, pad]]), 1.0)
    with pytest.raises(ValueError, match="noise and missing are for different processes"):
        AuditLoss(only_words, noise=lambda t, words: t, missing=lambda t: t)


def test_any_order_probability_of_the_exact_denoiser_is_p() -> None:
    for language in _audit_languages():
        denoise = _AuditDenoiser(language)
        p = _any_order_probability(language.toy.sequences, denoise, denoise.states)
        assert float((p - language.toy.p).abs().max()) < 1e-6


def test_a_posterior_is_held_to_bayes() -> None:
    def marginal(t, words):  # type: ignore[no-untyped-def]
        return (1 - t) * torch.eye(words) + t / words

    def transition(s, t, words):  # type: ignore[no-untyped-def]
        return (1 - t) / (1 - s) * torch.eye(words) + (t - s) / (1 - s) / words

    def posterior(s, t, words):  # type: ignore[no-untyped-def]
        joint = marginal(s, words)[:, None] * transition(s, t, words).T[None]
        return joint / joint.sum(-1, keepdim=True)

    right = audit(AuditProcess(marginal, transition, posterior))
    wrong = audit(AuditProcess(marginal, transition, lambda s, t, words: posterior(s, (s + t) / 2, words)))
    assert all(verdict.passed is not False for verdict in right)
    assert [verdict.answer for verdict in wrong if verdict.passed is False] == ["not so: posterior = Bayes' rule"]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("argument", "def f(x, denoiser, rng): ...", "a loss takes (x, denoise, rng)"),
        ("scalar", "def f(x, denoise, rng): return denoise(x).sum()", "it must be (B,) ="),
        ("empty", "def f(x, denoise, rng): return denoise(x[:, :0])", "z must hold integers of shape (B, 1)"),
        ("raises", "def f(x, denoise, rng): return x.nothing", "line 1: AttributeError"),
        ("infinite", "def f(x, denoise, rng): return x.sum(-1) / 0.0", "it must return finite nats"),
        ("number", "def f(denoise, length, rng): return 0.5", "it must be ids of shape"),
        ("nothing", "f = 3", "has nothing to audit"),
    ],
)
def test_mistakes_get_one_line(name: str, code: str, said: str, tmp_path: Path) -> None:
    (file := tmp_path / f"wrong_{name}.py").write_text(code)
    with pytest.raises((ValueError, AttributeError)) as error:
        audit(audited_in(load_module(file))[0], QUICK)
    assert said in _blame(error.value)
    assert "\n" not in _blame(error.value)


@pytest.mark.parametrize("kind", [AuditLoss, AuditSampler, AuditLogProb])
def test_a_decorator_checks_the_arguments(kind: type) -> None:
    with pytest.raises(ValueError, match="rename its arguments"):
        kind(lambda a, b: a)
    with pytest.raises(ValueError, match="as a decorator"):
        audit(kind())


def test_the_command(tmp_path: Path) -> None:
    """What a file prints does not mix with the verdicts; a file that does not end is stopped."""
    (file := tmp_path / "both.py").write_text(
        "print('hello')\n"
        "def zero(x, denoise, rng): return 0.0 * x.sum(-1)\n"
        "def forever(x, denoise, rng):\n    while True: pass\n"
    )
    done = redraft_here("audit", f"{file}:zero", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["answer"] == "not a bound"
    done = redraft_here("audit", str(ROOT / "examples" / "audit" / "mdlm.py"), "--resolution", "0.5")
    assert (done.returncode, done.stdout.count("ok  ")) == (0, 1)
    done = redraft_here("audit", f"{file}:forever", "--minutes", "0.1")
    assert done.returncode == 2
    assert "perhaps at a limit" in done.stderr
    assert redraft_here("audit", str(tmp_path / "none.py")).returncode == 2
