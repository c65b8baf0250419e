"""Adapting a causal model: it begins as the same model; adapters go off and merge; runs resume exactly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch

import redraft
from redraft.core import Batch, BatchOrigin, Context, HubTokenizer, Masked, WordTokenizer, rng
from redraft.models import (
    Causal,
    CheckpointError,
    DiffusionLM,
    Full,
    Shift,
    TransformerConfig,
    lora_disabled,
    lora_enabled,
)
from redraft.models.networks.inspection import record_layer_states
from redraft.models.networks.linear import lora_layers, lora_parameters
from redraft.tasks.infilling.causal_judge import _CausalJudge
from redraft.training import (
    AdaptationObjective,
    PackedRows,
    StratifiedTimes,
    TextFiles,
    TrainStep,
    adaptation_run,
    first_batches,
    load_rows,
    merge_adapter,
)
from redraft.training.objectives.adaptation import (
    _causal_nats,
)
from redraft.training.runs.loading import (
    init_from,
)

Build = Callable[..., DiffusionLM]
Say = Callable[..., tuple[str, str]]
WORDS = WordTokenizer(
    tuple(["the", "a", "cat", "dog", "sat", "ran", "on", "by", "mat", "tree", ".", "big"]), ("eos", "pad", "mask")
)


@pytest.fixture(scope="module")
def base(build: Build, tiny: TransformerConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain causal model, and a text to adapt it on."""
    folder = tmp_path_factory.mktemp("base")
    network = replace(tiny, tied=True, heads=4, kv_heads=2)
    model = build(Causal(), network, process=Masked(WORDS.vocab), head=Shift(), tokenizer=WORDS)
    redraft.export(folder / "model", model)
    (folder / "text.txt").write_text("\n\n".join(["the cat sat on the mat .", "a big dog ran by the tree ."] * 40))
    return folder


def run_of(base: Path, **options: Any) -> redraft.Run:
    data = TextFiles((str(base / "text.txt"),))
    return adaptation_run(redraft.training.load(base / "model"), str(base / "model"), data, PackedRows(12), **options)


def adapted(run: redraft.Run) -> DiffusionLM:
    model = DiffusionLM(run.model, run.tokenizer)
    with torch.no_grad():
        init_from(model, str(run.base))
    return model.eval()


@pytest.mark.parametrize("lora", [None, 4])
def test_at_first_it_is_the_causal_model(base: Path, lora: int | None) -> None:
    """Causal attention and shift on the adapted model: the original's logits, bit for bit."""
    model, original = adapted(run_of(base, lora=lora)), redraft.training.load(base / "model").eval()
    ids = torch.tensor([[0, 2, 4, 6, 0, 8, 10]])
    assert isinstance(model.config.network.pattern, Full)
    states = model.network(ids, None, Context(pattern=Causal()))
    assert torch.equal(states, original.network(ids, None))
    size = original.network.embedding.weight.shape[0]
    assert torch.equal(model.network.logits(states)[..., :size], original.network.logits(states))
    assert torch.equal(model.network.embedding.weight[-1], original.network.embedding.weight.mean(0))
    assert not torch.allclose(model.network(ids, None)[:, 0], states[:, 0])  # it does look to the right otherwise


def test_annealing_goes_from_causal_to_full() -> None:
    batch, place = Batch.of(torch.zeros(2, 40, dtype=torch.int64)), torch.arange(40)
    goal, shares = AdaptationObjective(anneal=10), []
    for step in range(10):
        pattern = goal.pattern(replace(batch, origin=BatchOrigin(step=step)))
        assert pattern is not None
        sees = pattern.sees(place[:, None], place)
        assert sees[place[:, None] >= place].all()
        shares.append(float(sees[place[:, None] < place].float().mean()))
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.1, abs=0.05)
    assert shares[-1] == 1
    assert goal.pattern(replace(batch, origin=BatchOrigin(step=10))) is None


def test_the_causal_loss_is_the_models_likelihood(base: Path) -> None:
    model, original = adapted(run_of(base)), redraft.training.load(base / "model").eval()
    ids = torch.tensor([[0, 2, 4, 6, 0, 8, 10]])
    masks, later = torch.full_like(ids, original.config.vocab.masked), torch.arange(7)[None] > 0
    exact = original.predict(masks, torch.ones(1, 1), Context(clean=ids)).nll(later, ids)
    torch.testing.assert_close(_causal_nats(model, Batch.of(ids)), exact, rtol=1e-5, atol=1e-5)


def test_an_adapter_can_be_off_gated_and_merged(base: Path) -> None:
    model, plain = adapted(run_of(base, lora=4)), adapted(run_of(base))
    torch.manual_seed(0)
    with torch.no_grad():
        for layer in lora_layers(model):
            layer.lora_b.normal_()
    ids = torch.tensor([[0, 2, 14, 6, 14, 8, 10]])
    changed, same = model.network(ids, None), plain.network(ids, None)
    assert not torch.allclose(changed, same)
    with lora_disabled(model):
        assert torch.equal(model.network(ids, None), same)
    with lora_enabled(model, gate=torch.zeros_like(ids, dtype=torch.bool)):
        assert torch.equal(model.network(ids, None), same)
    causal = Context(pattern=Causal())
    with lora_enabled(model, gate=ids == 14):  # tokens before the first mask are those of the base
        assert torch.equal(model.network(ids, None, causal)[:, :2], plain.network(ids, None, causal)[:, :2])
    torch.testing.assert_close(
        merge_adapter(model).network(ids, None), changed, rtol=1e-3, atol=1e-3
    )  # it rounds otherwise


def test_only_the_adapter_learns(base: Path) -> None:
    run = run_of(base, lora=4, objective=AdaptationObjective(anneal=2, ar=0.3, align=10.0))
    model = adapted(run)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = TrainStep(model, run.objective)
    loss = step(Batch.of(torch.randint(0, 12, (3, 12))), rng(0, 3))
    assert set(loss.parts) == {"diffusion", "ar", "align"}
    loss.mean.backward()
    learned = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learned == {name for name in before if "lora" in name}
    with pytest.raises(ValueError, match="needs an adapter"):
        TrainStep(adapted(run_of(base)), AdaptationObjective(align=1.0))


# --- the command ---


def command(base: Path, out: Path, *more: object) -> list[str]:
    words = ["adapt", base / "model", "--out", out, "--data", base / "text.txt", "--length", 12, "--batch", 4]
    return [str(word) for word in [*words, "--quiet", *more]]


def test_adapt_then_write(base: Path, tmp_path: Path, say: Say) -> None:
    out, err = say(
        *command(base, tmp_path / "run", "--steps", 3, "--lora", 2, "--anneal", 2, "--ar", 0.3, "--align", 10)
    )
    assert "step 3" in out + err
    assert say("infill", tmp_path / "run", "the cat [[2]] the mat")[0].startswith("the cat")
    model = merge_adapter(redraft.training.load(tmp_path / "run"))
    redraft.export(tmp_path / "whole", model)
    assert redraft.training.load(tmp_path / "whole").config.network.lora is None


def test_killed_and_continued_it_is_the_same(base: Path, tmp_path: Path, say: Say) -> None:
    """kill −9 in the middle, the same command again: the weights of an undisturbed run, bit for bit."""
    options = ("--steps", 8, "--save-every", 1, "--anneal", 4, "--ar", 0.3, "--lr", 1e-2)
    say(*command(base, tmp_path / "whole", *options))
    words = [sys.executable, "-m", "redraft.apps.cli", *command(base, tmp_path / "killed", *options)]
    child = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    while child.poll() is None and not list((tmp_path / "killed").glob("step-*2")):
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    say(*command(base, tmp_path / "killed", *options))
    one, other = (dict(redraft.training.load(tmp_path / name).named_parameters()) for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--align", 10), "also give --lora RANK"),
        (("--steps", 0), "--steps 0"),
        (("--lora", 0), "--lora 0"),
        (("--ar", -1), "ar=-1"),
    ],
)
def test_wrong_words(base: Path, tmp_path: Path, say: Say, more: tuple[object, ...], message: str) -> None:
    _, err = say(*command(base, tmp_path / "run", *more), code=2)
    assert message in err


def test_what_cannot_be_adapted(base: Path, build: Build, tmp_path: Path, say: Say) -> None:
    redraft.export(tmp_path / "full", build(process=Masked(WORDS.vocab), tokenizer=WORDS))
    redraft.export(tmp_path / "start", build(Causal(), process=Masked(WORDS.vocab), tokenizer=WORDS))
    block = ("--block", 4)
    for name, more, message in (
        ("full", (), "it already fills masks"),
        ("start", block, "has a start token, which blocks do not read"),
    ):
        words = command(base, tmp_path / "run", *more)
        words[1] = str(tmp_path / name)
        assert message in say(*words, code=2)[1]
    with pytest.raises(CheckpointError, match="is different; build both"):
        init_from(build(), base / "model")


def test_a_model_with_a_start_token_is_adapted_too(base: Path, build: Build, tmp_path: Path, say: Say) -> None:
    """It begins as the same causal model, whose first token is predicted too; opened, it fills masks."""
    causal = build(Causal(), process=Masked(WORDS.vocab), tokenizer=WORDS).eval()
    redraft.export(tmp_path / "start", causal)
    data = TextFiles((str(base / "text.txt"),))
    start = str(tmp_path / "start")
    run = adaptation_run(
        redraft.training.load(start), start, data, PackedRows(12), objective=AdaptationObjective(anneal=4)
    )
    model, (batch,) = adapted(run), first_batches(load_rows(data, "train", WORDS, PackedRows(12)), 2, 2)
    with torch.no_grad():
        t = torch.ones(batch.tokens.shape).double()
        hidden = torch.full_like(batch.tokens, WORDS.vocab.masked)
        nll = causal.predict(hidden, t, Context(clean=batch.tokens)).nll(torch.ones_like(batch.learn), batch.tokens)
        torch.testing.assert_close(_causal_nats(model, batch), nll)
        loss = TrainStep(model, run.objective)(batch, rng(0, batch.origin.sample))
    assert loss.nats.sum() > 0
    pattern = run.objective.pattern(batch, 1)
    assert pattern is not None
    assert pattern.open.shape == (13, 13)  # type: ignore[attr-defined]
    words = command(base, tmp_path / "run", "--steps", 3, "--anneal", 2, "--ar", 0.3)
    words[1] = start
    say(*words)
    filled = redraft.infill(redraft.training.load(tmp_path / "run"), "the cat [[1]] on the mat .", sampler="gibbs")
    assert len(filled[0].text.split()) == 7


def test_infill_by_both_models(base: Path, tmp_path: Path, say: Say) -> None:
    """The adapter proposes, the causal model judges; asked for another sampler, that one writes."""
    say(*command(base, tmp_path / "run", "--steps", 3, "--lora", 2))
    model = redraft.training.load(tmp_path / "run").eval()
    found = redraft.infill(model, "the cat [[1]] on the mat .")
    text = WORDS.encode("the cat sat on the mat .")
    texts = torch.tensor([[*text[:2], word, *text[3:]] for word in range(12)])
    hidden = texts[:1].clone()
    hidden[0, 2] = WORDS.vocab.masked
    with torch.no_grad():
        q = model.predict(hidden, torch.full((1, 1), 1 / 7), Context()).at(hidden == WORDS.vocab.masked)[0, :12]
        with lora_disabled(model):
            p = -_causal_nats(model, Batch.of(texts)).sum(-1)
    assert found[0].text.split()[2] == WORDS.decode([int((q + p).argmax())])
    assert found[0].text.startswith("the cat")
    own = redraft.infill(model, "the cat [[1]] on the mat .", sampler="confidence", steps=1)
    assert own[0].text.split()[2] == WORDS.decode([int(q.argmax())])


def test_alignment_is_that_of_all_layers(base: Path) -> None:
    """One pass gives loss and alignment, the mean of 1 − cos over all layers; the mask's row learns."""
    run = run_of(base, lora=4)
    model, ids = adapted(run), torch.randint(0, 12, (3, 12))
    torch.manual_seed(0)
    with torch.no_grad():
        for p in lora_parameters(model):
            p.normal_(0, 0.1)
    loss = AdaptationObjective(align=10.0)(model, batch := Batch.of(ids), rng=rng(0, 3))
    early, late = rng(0, 3).split(2)
    first = torch.arange(12) == 0
    t = torch.where(first, 0.0, StratifiedTimes()(replace(batch, learn=batch.learn & ~first), rng=early))
    z = model.process.noise(ids, t, rng=late).z
    with torch.no_grad():
        with record_layer_states(model.network) as ours:
            model.network(z, None)
        with lora_disabled(model), record_layer_states(model.network) as theirs:
            model.network(ids, None, Context(pattern=Causal()))
    apart = torch.stack([1 - torch.cosine_similarity(a, b, dim=-1) for a, b in zip(ours, theirs, strict=True)]).mean(0)
    expected = 10 * torch.where(z[:, 1:] == WORDS.vocab.masked, apart[:, :-1], 0.0).sum()
    torch.testing.assert_close(loss.parts["align"].sum() * 33, expected, rtol=1e-4, atol=1e-5)
    loss.mean.backward()
    assert model.network.embedding.lora_row.grad is not None


def test_the_judge_reads_what_is_shared_once(base: Path) -> None:
    """Differences of log p are those of whole rows; limited to some tokens behind the hole, those of a shorter row."""
    model = adapted(run_of(base, lora=4))
    rows = torch.tensor([[0, 2, 4, 6, 0, 8, 10]]).repeat(5, 1)
    rows[:, 3], rows[:, 4] = torch.arange(5), torch.arange(5) * 2
    with torch.no_grad():
        whole, short = (-_causal_nats(model, Batch.of(z)).double().sum(-1) for z in (rows, rows[:, :6]))
    for after, right in ((None, whole), (2, whole), (1, short)):
        found = _CausalJudge(model, after)(rows, None)
        torch.testing.assert_close(found - found[0], right - right[0], rtol=1e-4, atol=1e-4)
    padded = torch.arange(7).expand(5, 7) > 5
    found = _CausalJudge(model)(rows, padded)
    torch.testing.assert_close(found - found[0], short - short[0], rtol=1e-4, atol=1e-4)
    assert not _CausalJudge(model)(rows[:1].repeat(3, 1), None).any()


def test_the_recipe_continues(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`recipes/adapt.py`: training, then holes in five ways; what is there already is not done again."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "recipes")
    import adapt

    words = ["adapt.py", "--model", base / "model", "--data", base / "text.txt", "--out", tmp_path / "out", "--lora", 2]
    words += ["--steps", 2, "--batch", 2, "--length", 12, "--words", 6, "--spans", 4, "--curve", 3]
    monkeypatch.setattr(sys, "argv", [str(word) for word in [*words, "--results", tmp_path]])
    adapt.main()
    before = (tmp_path / "adapt.jsonl").read_text()
    adapt.main()
    assert (tmp_path / "adapt.jsonl").read_text() == before
    rows = {row["name"]: row for row in map(json.loads, before.splitlines())}
    assert list(rows) == ["72 tokens, 6 words", "72 tokens, 4 spans", "24 tokens, 3 words", "48 tokens, 3 words"]
    last = rows["72 tokens, 6 words"]
    assert set(last["shares"]) == set(adapt.WAYS)
    assert last["tokens"] == (2 + 1) * 2 * 12
    assert last["gain"] == pytest.approx(last["shares"]["both"] - last["shares"]["causal, rescored"], abs=1e-3)


def test_the_recipe_measures_what_infill_writes(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "recipes")
    import adapt

    model = adapted(run_of(base, lora=4))
    torch.manual_seed(1)
    with torch.no_grad():
        for p in lora_parameters(model):
            p.normal_(0, 0.5)
    found = redraft.infill(model, "the cat [[2]] the mat .")[0].text
    row = torch.tensor(WORDS.encode(found))
    hole = adapt.Hole(row, 2, 2)
    answers = adapt.with_adapter(model, hole, causal := adapt.with_causal(model, hole))
    assert answers["both"]
    ways, by_whole = torch.tensor(causal["ways"]), _CausalJudge(model, adapt.AFTER)
    with torch.no_grad():
        with lora_disabled(model):
            states = model.network(row[None, :2], None, Context(pattern=Causal()))
        best = model.network.logits(states[0, -1])[:-1].topk(6).indices
    assert set(ways[:, 0].tolist()) <= set(range(14))
    assert int(best[0]) in ways[:, 0].tolist()
    scores = by_whole(hole.filled(ways), None)
    assert torch.allclose(scores - scores[0], torch.tensor(causal["log_p"]).double() - causal["log_p"][0], atol=1e-3)


def test_a_run_keeps_its_base(base: Path, build: Build, tiny: TransformerConfig, tmp_path: Path, say: Say) -> None:
    """The adapter of one model is not continued on another; other weights and drafters are refused."""
    say(*command(base, tmp_path / "run", "--steps", 1, "--lora", 2))
    other = build(
        Causal(), replace(tiny, tied=True), process=Masked(WORDS.vocab), head=Shift(), tokenizer=WORDS, seed=3
    )
    redraft.export(tmp_path / "other", other)
    words = command(base, tmp_path / "run", "--steps", 1, "--lora", 2)
    words[1] = str(tmp_path / "other")
    assert len(say(*words, code=2)[1].strip().splitlines()) == 1
    for more in (("--draft", tmp_path / "nowhere"), ("--weights", "int4"), ("--draft", "lookup", "--accept", "token")):
        err = say("generate", base / "model", "the cat", "--new", "3", *map(str, more), code=2)[1]
        assert "Traceback" not in err
    words = ["generate", str(tmp_path / "run"), "the", "--new", "3", "--draft", "lookup"]
    assert "drafted tokens accepted" in say(*words)[1], "by the causal model inside"
    assert "not a causal model" in say(*words, "--sampler", "ancestral", code=2)[1]
    with pytest.raises(ValueError, match="use fp16, int8, onnx, packed"):
        redraft.training.load(base / "model", weights="int4")  # type: ignore[call-overload,arg-type]


# --- blocks and chats ---

SKY = ("?", "sun", "rain", "warm", "wind", "cold", "day", "snow", "user")
TURNS = "{% for m in messages %}<|turn|>{{ m.role }} {{ m['content'] }}<|end|>{% endfor %}<|turn|>"


@pytest.mark.parametrize("lora", [None, 4])
def test_blocks_learn_what_they_are_asked_when_writing(base: Path, lora: int | None) -> None:
    """The pass of training says of a masked block what a pass behind the cache of the blocks before says."""
    model = adapted(run_of(base, lora=lora, block=4))
    torch.manual_seed(0)
    with torch.no_grad():
        for p in lora_parameters(model):
            p.normal_(0, 0.3)
    ids, mask = torch.randint(0, 12, (2, 12)), WORDS.vocab.masked
    for first in (4, 8):
        window = slice(first, first + 4)
        z = ids.clone()
        z[:, window] = torch.tensor([[mask, mask, 3, mask], [mask, 5, mask, mask]])
        where = z == mask
        with torch.no_grad():
            trained = model.predict(z, where.double(), Context(clean=ids)).at(where)
            cache = model.absorb(ids[:, :first], replace(Context(), positions=torch.arange(first)[None])).cache
            behind = Context(cache=cache, positions=torch.arange(first, first + 4)[None])
            asked = model.predict(z[:, window], where[:, window].double(), behind).at(where[:, window])
        torch.testing.assert_close(trained, asked, rtol=1e-4, atol=1e-4)


def test_blocks_by_command(base: Path, tmp_path: Path, say: Say) -> None:
    options = ("--steps", 2, "--lora", 2, "--block", 4, "--align", 10, "--ar", 0.3)
    say(*command(base, tmp_path / "run", *options))
    model = redraft.training.load(tmp_path / "run")
    assert model.block == 4
    assert say("generate", tmp_path / "run", "the cat", "--new", "6")[0].startswith("the cat")
    err = say(*command(base, tmp_path / "other", "--block", 4, "--anneal", 3), code=2)[1]
    assert "give one of them" in err


def test_a_chat_by_command(published_chat: Path, tmp_path: Path, say: Say) -> None:
    """Questions stay clean, and answers alone are learned."""
    words = ["adapt", published_chat / "model", "--out", tmp_path / "run", "--data", published_chat / "pairs.jsonl"]
    say(*map(str, [*words, "--chat", "--length", 32, "--batch", 2, "--steps", 2, "--lora", 2, "--quiet"]))
    run, _ = redraft.training.describe_run(tmp_path / "run")
    assert run is not None
    batch = next(iter(first_batches(load_rows(run.data, "train", run.tokenizer, run.framing), 2)))
    clean = ~batch.learn[0]
    assert "rain" in run.tokenizer.decode(batch.tokens[0][clean].tolist())
    assert batch.tokens[0][batch.learn[0]][-1] == run.tokenizer.vocab.eos
    assert say("generate", tmp_path / "run", "--source", "sun rain", "--new", "8")
    refused = say(*map(str, [*words[:-1], base_text(tmp_path), "--chat"]), code=2)[1]
    assert "--chat reads .jsonl files" in refused


def base_text(folder: Path) -> Path:
    file = folder / "text.txt"
    file.write_text("the sun .")
    return file


@pytest.fixture
def published_chat(build: Build, tiny: TransformerConfig, tmp_path: Path) -> Path:
    """A causal model whose tokenizer has a chat template, and questions with answers."""
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(SKY)}, unk_token="?"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<|turn|>", "<|end|>"])
    hub = HubTokenizer(backend.to_str(), eos="<|end|>", mask="<|mask|>", template=TURNS)
    process = Masked(hub.vocab)
    model = build(Causal(), replace(tiny, tied=True), process=process, head=Shift(), tokenizer=hub)
    redraft.export(tmp_path / "model", model)
    lines = [{"source": "sun rain", "target": "warm wind"}, {"source": "cold day", "target": "snow"}] * 20
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_the_next_token_by_the_left_side(base: Path) -> None:
    """What the judge says of one token, whether or not all rows begin alike, is the causal model's law."""
    model, original = adapted(run_of(base, lora=4)), redraft.training.load(base / "model").eval()
    rows = torch.tensor([[0, 2, 4, 6, 0, 8, 10]]).repeat(3, 1)
    for changed, column in ((None, 3), (3, 5), (3, 4)):
        if changed is not None:
            rows[:, changed] = torch.arange(3)
        with torch.no_grad():
            right = original.network.logits(original.network(rows[:, :column], None)[:, -1]).log_softmax(-1)
        found = _CausalJudge(model).next_token_log_probs(rows, column)
        torch.testing.assert_close(found[:, :-1].float(), right, rtol=1e-4, atol=1e-4)
        assert not found[:, -1].isfinite().any()
