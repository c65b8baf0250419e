"""Classes of texts: sources, rows, what a network is told of them, guidance by them, and the command line."""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from zlib import crc32

import pytest
import torch
from conftest import randomize
from torch import Tensor

from redraft.apps.cli import main
from redraft.core import (
    Batch,
    Condition,
    Context,
    Gaussian,
    Insertion,
    Interpolating,
    Masked,
    Tokenizer,
    WordTokenizer,
    randomness,
)
from redraft.decoding import Ancestral, ClassifierFree, GuidedSampler
from redraft.models import (
    Compressed,
    DiffusionLM,
    DiffusionLMConfig,
    ErrorHeadConfig,
    MaskedLM,
    PredictX,
    TransformerConfig,
    TransformerSize,
    blank_canvas,
)
from redraft.tasks import sample_canvases
from redraft.training import (
    STORY_LANGUAGE,
    DataError,
    DataStats,
    DocumentRows,
    EncoderRows,
    ErrorHeadObjective,
    HasClasses,
    InfinitePairs,
    Jsonl,
    JsonlClasses,
    LabeledRows,
    Loader,
    Objective,
    OptimizerConfig,
    Pair,
    Run,
    SourceCoverage,
    Split,
    StoryClasses,
    StoryCorpus,
    TokenCrossEntropy,
    export,
    first_batches,
    fit,
    likelihood,
    load_rows,
    mean_coverage,
    presets,
)
from redraft.training.objectives.conditioning import (
    _drop_condition,
)
from redraft.training.runs import variations

WORDS = WordTokenizer(("a", "b", "c", "d"), ("eos", "pad", "mask"))


@dataclass(frozen=True)
class Letters:
    """A toy whose class tells all: the class of "a b b a" is early, that of "d c c d" is late."""

    classes: tuple[str, ...] = ("early", "late")

    def pair(self, split: Split, index: int) -> Pair:
        bits = crc32(f"{split} {index}".encode())
        return Pair(self.classes[index % 2], " ".join(("ab", "cd")[index % 2][bits >> n & 1] for n in range(4)))

    def document(self, split: Split, index: int) -> str:
        return self.pair(split, index).target


NETWORK = TransformerConfig(width=32, layers=1, heads=2, positions=9, time=32, classes=2)
CONFIG = DiffusionLMConfig(Masked(WORDS.vocab), NETWORK)


def build(config: DiffusionLMConfig = CONFIG, tokenizer: Tokenizer = WORDS) -> DiffusionLM:
    """Untrained, and nothing alike but the class of none, which is what it always is."""
    model = randomize(DiffusionLM(config, tokenizer), 0).eval()
    with torch.no_grad():
        model.network.time.label.weight[-1] = 0.0  # type: ignore[union-attr]
    return model


def toy() -> Run:
    return Run(
        CONFIG,
        Letters(),
        WORDS,
        LabeledRows(4),
        objective=Objective(TokenCrossEntropy(), drop_condition=0.25),
        optimizer=OptimizerConfig(lr=2e-2, floor=0.0, ema=0.9),
        steps=80,
        batch=32,
        eval_every=80,
        eval_rows=4,
        samples=2,
        sampler=Ancestral(4),
    )


@pytest.fixture(scope="module")
def model() -> DiffusionLM:
    return build()


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> DiffusionLM:
    return fit(toy(), tmp_path_factory.mktemp("toy"), quiet=True)


def noisy(rows: int = 3) -> tuple[Tensor, Tensor]:
    mask = WORDS.vocab.masked
    return torch.tensor([[0, mask, mask, 3]]).repeat(rows, 1), torch.linspace(0.9, 0.1, rows)[:, None]


# Sources


@pytest.mark.parametrize("topic", ["mood", "plot", "season", "length"])
def test_a_story_is_of_its_class(topic: str) -> None:
    data = StoryClasses(topic)
    assert isinstance(data, HasClasses)
    assert isinstance(data, InfinitePairs)
    assert data.classes == STORY_LANGUAGE.labels(topic)
    pairs = [data.pair("valid", index) for index in range(30)]
    assert {pair.source for pair in pairs} == set(data.classes)
    assert all(data.check(*pair) == SourceCoverage(1.0, 1.0) for pair in pairs)
    assert [data.document("valid", index) for index in range(30)] == [pair.target for pair in pairs]
    assert StoryCorpus().document("valid", 7) == data.document("valid", 7)
    assert data.pair("train", 0) != data.pair("valid", 0) != StoryClasses(topic, seed=1).pair("valid", 0)


def test_the_share_of_texts_of_the_class_that_was_asked_for() -> None:
    data = StoryClasses("mood")
    text = next(pair.target for pair in (data.pair("test", i) for i in range(99)) if pair.source == "sad")
    spoilt, other = text[:-1] + " !", text.replace("felt sad", "felt tired", 1)
    assert mean_coverage(data, ["sad"], [text]) == SourceCoverage(1.0, 1.0)
    assert mean_coverage(data, ["sad"] * 4, [text, spoilt, other, ""]) == SourceCoverage(
        0.5, 0.25
    )  # spoilt only after the mood
    assert mean_coverage(data, ["tired"], [text]) == SourceCoverage(0.0, 0.0)
    with pytest.raises(ValueError, match="stories have no attribute 'color'; choose from who, "):
        StoryClasses("color")


def test_classes_from_json_lines(tmp_path: Path) -> None:
    names = ("World", "Sports")
    file = tmp_path / "news.jsonl"
    file.write_text("\n\n".join(json.dumps({"text": f"b {n}", "label": names[n % 2]}) for n in range(20)))
    data = JsonlClasses((str(file),), classes=names)
    assert list(data.pairs("valid", DataStats())) == [Pair("World", "b 18")]
    assert (
        list(data.documents("test", DataStats()))
        == ["b 19"]
        == list(Jsonl((str(file),)).documents("test", DataStats()))
    )
    assert len(list(data.pairs("train", tally := DataStats()))) == tally.documents == 18
    for order, labels in ((names, [0, 1, 0]), (names[::-1], [1, 0, 1])):  # whatever stands first in the file
        rows = load_rows(replace(data, classes=order), "train", WORDS, LabeledRows(4))
        assert [rows.row(i).label for i in range(3)] == labels


def test_a_class_without_a_number_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "news.jsonl"
    file.write_text('{"text": "a", "label": "World"}\n{"text": "b", "label": "Wrold"}\n{"text": "c"}\n')
    data = JsonlClasses((str(file),), valid=(str(file),), classes=("World", "Sports"))
    with pytest.raises(
        DataError, match=r"news.jsonl:2: 'Wrold' is not one of the classes World, Sports; add it to cl.*skip"
    ):
        list(data.pairs("train", DataStats()))
    assert list(replace(data, on_bad="skip").pairs("train", tally := DataStats())) == [Pair("World", "a")]
    assert (tally.bad, tally.problems[1]) == (2, f"{file}:3: not an object with a string in the field 'label'")
    for wrong in ((), ("a", "a"), "World"):
        with pytest.raises(DataError, match="give the names of all classes, each once"):
            JsonlClasses((str(file),), classes=wrong)  # type: ignore[arg-type]


# Rows


def test_labels_survive_rows_batches_and_devices() -> None:
    rows = load_rows(Letters(), "train", WORDS, LabeledRows(5, fill_with_eos=False))
    batch = rows.take([0, 3, 4, 5])
    assert batch.condition.label is not None
    assert (batch.condition.label.tolist(), batch.condition.label.dtype) == ([0, 1, 0, 1], torch.int64)
    assert [WORDS.decode(row[:4]) for row in batch.tokens.tolist()] == [
        Letters().document("train", i) for i in (0, 3, 4, 5)
    ]
    assert batch.to(torch.device("meta")).condition.label.device.type == "meta"  # type: ignore[union-attr]
    loaded = next(Loader(rows, 4).batches(8))
    assert loaded.condition.label.tolist() == [n % 2 for n in loaded.origin.sample.tolist()]  # type: ignore[union-attr]
    assert [b.condition.label.tolist() for b in first_batches(rows, 3, 2)] == [[0, 1], [0]]  # type: ignore[union-attr]
    context = Context(condition=Condition(label=batch.condition.label))
    assert context.rows(torch.tensor([3, 0])).condition.label.tolist() == [1, 0]  # type: ignore[union-attr]
    plain = load_rows(Letters(), "train", WORDS, DocumentRows(4)).take([1])  # plain documents, too
    assert plain.condition.label is None


def test_framings_say_what_they_need() -> None:
    with pytest.raises(DataError, match="StoryCorpus has texts but no classes, which LabeledRows needs"):
        load_rows(StoryCorpus(), "train", WORDS, LabeledRows(4))
    rows = load_rows(Letters(("a", "d")), "train", WORDS, EncoderRows(5, 3))
    sourced = rows.take([1])  # an encoder may read the name
    assert sourced.condition.source.tolist() == [[3, WORDS.vocab.eos]]  # type: ignore[union-attr]


# What the network is told


def test_to_lose_a_label_is_to_have_none(model: DiffusionLM) -> None:
    z, t = noisy()
    told = Context(condition=Condition(label=torch.tensor([1, 0, 1])))
    lost = _drop_condition(model, told, 1.0, rng=randomness.rng(0, 3))
    assert lost.condition.label.tolist() == [2, 2, 2]  # type: ignore[union-attr]
    assert torch.equal(model.predict(z, t, lost).x, model.predict(z, t, Context()).x), "bit for bit"
    assert not torch.allclose(model.predict(z, t, told).x, model.predict(z, t, Context()).x, atol=1e-2)
    assert _drop_condition(model, told, 0.0, rng=randomness.rng(0, 3)) is told
    assert _drop_condition(model, Context(), 1.0, rng=randomness.rng(0, 3)) == Context()


def test_the_chosen_share_loses_its_label_row_by_row(model: DiffusionLM) -> None:
    rows = 400
    told = Context(condition=Condition(label=torch.arange(rows) % 2))
    lost = _drop_condition(model, told, 0.25, rng=randomness.rng(0, rows)).condition.label
    assert lost is not None
    gone = lost == 2
    assert 70 < int(gone.sum()) < 130
    assert torch.equal(lost[~gone], told.condition.label[~gone])  # type: ignore[index]
    z, t = noisy(rows)
    mixed, without = model.predict(z, t, Context(condition=Condition(label=lost))).x, model.predict(z, t, Context()).x
    torch.testing.assert_close(mixed[gone], without[gone])


def test_the_class_of_none_never_learns(learned: DiffusionLM) -> None:
    table = learned.network.time.label.weight  # type: ignore[union-attr]
    assert not bool(table[2].any())
    assert bool(table[:2].abs().amin(1).gt(0).all())


def test_labels_are_classes_of_the_network(model: DiffusionLM) -> None:
    batch = Batch.of(torch.zeros(2, 4, dtype=torch.int64))
    for labels in ([0, 2], [-1, 0]):
        for ask in (model.read, partial(blank_canvas, model)):
            with pytest.raises(ValueError, match="for a network with 2 classes, counted from 0"):
                ask(replace(batch, condition=Condition(label=torch.tensor(labels))))
    with pytest.raises(ValueError, match="with 0 classes"):
        DiffusionLM(replace(CONFIG, network=replace(NETWORK, classes=None))).read(
            replace(batch, condition=Condition(label=torch.tensor([0, 0])))
        )
    with pytest.raises(ValueError, match="3 labels for 2 rows"):
        model.canvas(new=4, rows=2, label=[0, 1, 0])
    assert model.canvas(new=4, rows=2, label=1).context.condition.label.tolist() == [1, 1]  # type: ignore[union-attr]


def test_insertion_is_told_labels_too() -> None:
    model = build(replace(CONFIG, process=Insertion(WORDS.vocab), network=replace(NETWORK, gaps=4)))
    z, t = noisy(2)
    one, two = (model.predict(z, t, Context(condition=Condition(label=torch.tensor([n, n])))) for n in (0, 1))
    assert not torch.allclose(one.x, two.x, atol=1e-2)
    assert not torch.allclose(one.gaps.mean, two.gaps.mean, atol=1e-2)


def test_the_error_layer_judges_texts_of_their_class() -> None:
    model = build(replace(CONFIG, parts=(ErrorHeadConfig(),)))
    batch = load_rows(Letters(), "train", WORDS, LabeledRows(4)).take(range(4))
    assert batch.condition.label is not None
    nats = [
        ErrorHeadObjective()(model, b, rng=randomness.rng(0, 4)).nats.sum()
        for b in (batch, replace(batch, condition=Condition(label=1 - batch.condition.label)))
    ]
    assert nats[0] != nats[1]


# Learning


@pytest.fixture(scope="module")
def held_out() -> list[Batch]:
    return first_batches(load_rows(Letters(), "valid", WORDS, LabeledRows(4)), 32)


def test_what_is_told_is_used(learned: DiffusionLM, held_out: list[Batch]) -> None:
    """Four letters are four bits for those who know the class, and five at least for the others."""
    told = likelihood(learned, held_out, draws=4)
    untold = likelihood(learned, [replace(batch, condition=Condition()) for batch in held_out], draws=4)
    false = likelihood(
        learned, [replace(b, condition=Condition(label=b.condition.label.ne(1).long())) for b in held_out], draws=4
    )  # type: ignore[union-attr]
    assert 3.9 < 4 * told.bits_per_token < 4.4
    assert 5 < 4 * untold.bits_per_token < 9
    assert false.bits_per_token > untold.bits_per_token


def test_texts_are_of_the_class_that_is_asked_for(learned: DiffusionLM, held_out: list[Batch]) -> None:
    def late(texts: list[str]) -> list[int]:
        return [int(set(text.split()) <= {"c", "d"}) for text in texts]

    canvas = blank_canvas(learned, held_out[0])
    assert canvas.context.condition.label is held_out[0].condition.label
    written = sample_canvases(learned, Ancestral(4), canvas, batch=9).texts
    right = [a == b for a, b in zip(late(written), held_out[0].condition.label.tolist(), strict=True)]  # type: ignore[union-attr]
    assert sum(right) >= 30
    for label in (0, 1):
        asked = learned.canvas(new=4, rows=16, label=label)
        guided = sample_canvases(learned, GuidedSampler(Ancestral(4), ClassifierFree(2.0)), asked)
        assert late(guided.texts) == [label] * 16
        plain = sample_canvases(learned, Ancestral(4), asked)
        assert guided.nfe == 2 * plain.nfe


@pytest.mark.parametrize("noise", [Masked, Interpolating])
def test_guidance_of_zero_and_one_are_the_branches_bit_for_bit(noise: type) -> None:
    model = build(replace(CONFIG, process=noise(WORDS.vocab)))
    canvas = model.canvas(new=4, rows=6, label=[0, 1] * 3)

    def text(sampler: object, told: bool = True) -> list[str]:
        start = canvas if told else replace(canvas, context=Context())
        return sample_canvases(model, sampler, start).texts  # type: ignore[arg-type]

    plain = Ancestral(4)
    assert text(GuidedSampler(plain, ClassifierFree(1.0))) == text(plain)
    assert text(GuidedSampler(plain, ClassifierFree(0.0))) == text(plain, told=False)
    z, t = noisy(6)
    said = [
        ClassifierFree(scale, none)(model).predict(z, t, canvas.context).x for scale in (0.0, 2.0) for none in (None, 2)
    ]
    assert torch.equal(said[0], model.predict(z, t).x)
    assert not torch.allclose(said[0], model.predict(z, t, canvas.context).x, atol=1e-2)
    assert torch.equal(said[0], said[1]), "the class of none is none"
    assert torch.equal(said[2], said[3])


def test_a_learned_class_of_none_can_be_named() -> None:
    """As in the weights of UDLM, whose last row is not zero."""
    other = randomize(DiffusionLM(CONFIG), 0).eval()
    z, t = noisy()
    context = Context(condition=Condition(label=torch.tensor([0, 1, 0])))
    none = other.predict(z, t, Context(condition=Condition(label=torch.full((3,), 2)))).x
    assert torch.equal(ClassifierFree(0.0, none=2)(other).predict(z, t, context).x, none)
    assert torch.equal(ClassifierFree(0.0)(other).predict(z, t, context).x, other.predict(z, t).x)
    assert not torch.allclose(none, other.predict(z, t).x, atol=1e-2)


# LD4TG


def small(run: Run) -> Run:
    """The same recipe for a second or two."""
    network = replace(run.model.network, width=16, heads=2, layers=1, hidden=32, time=8)
    few = replace(run, base=None, steps=2, batch=2, eval_every=2, eval_rows=2, samples=2, sampler=Ancestral(2))
    return replace(few, model=replace(run.model, network=network))


def test_the_preset_shares_its_codec_and_loses_labels() -> None:
    run, plain = presets.ld4tg_class_tiny(), presets.ld4tg_tiny()
    assert (run.model.codec, run.base, run.tokenizer) == (plain.model.codec, plain.base, plain.tokenizer)
    assert run.objective == replace(plain.objective, drop_condition=0.1)  # type: ignore[arg-type]
    assert run.model.network == replace(plain.model.network, classes=6)
    assert run.framing == LabeledRows(presets.STORY_LENGTH)
    with pytest.raises(ValueError, match=r"CodecObjective does not"):
        variations.with_classes(presets.ld4tg_codec_tiny(), StoryClasses())


def test_a_canvas_of_latents_keeps_its_label() -> None:
    run = small(presets.ld4tg_class_tiny())
    model = build(run.model, run.tokenizer)
    batch = load_rows(run.data, "valid", run.tokenizer, run.framing).take(range(3))
    canvas = blank_canvas(model, batch)
    assert canvas.z.dim() == 3
    assert torch.equal(canvas.context.condition.label, batch.condition.label)  # type: ignore[arg-type]
    z = model.process.prior(canvas, rng=randomness.rng(0, 3)).z
    t = torch.full((3, 1), 0.5)
    assert not torch.allclose(model.predict(z, t, canvas.context).x, model.predict(z, t, Context()).x, atol=1e-2)
    padded = load_rows(run.data, "valid", run.tokenizer, LabeledRows(run.framing.length, fill_with_eos=False)).take(
        range(2)
    )
    assert blank_canvas(model, padded).z.shape == canvas.z[:2].shape, "padding is nothing given"
    with pytest.raises(ValueError, match="without given tokens"):
        blank_canvas(model, replace(batch, learn=torch.arange(run.framing.length).expand_as(batch.learn) > 3))


def test_a_start_sign_is_nothing_given() -> None:
    words = WordTokenizer(("a", "b"), ("bos", "eos", "mask"))
    codec = Compressed(MaskedLM(4, TransformerSize(16, 1, 2)), 4, count=2, width=8)
    model = build(DiffusionLMConfig(Gaussian(words.vocab), NETWORK, PredictX(), codec=codec), words)
    assert model.canvas(new=3, rows=2, label=[0, 1]).z.shape == (2, 2, 8)
    with pytest.raises(ValueError, match="without given tokens"):
        model.canvas("a", new=2)


# The command line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("classes")
    run = small(presets.ld4tg_class_tiny())
    always = replace(run, objective=replace(run.objective, drop_condition=0.0))  # type: ignore[arg-type]
    runs = {"sometimes": run, "always": always, "never": small(presets.ld4tg_tiny())}
    for name, it in runs.items():
        fit(it, folder / name, quiet=True)
    return {name: folder / name for name in runs}


def test_evaluation_writes_texts_of_held_out_classes(
    trained: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in (trained["sometimes"] / "metrics.jsonl").read_text().splitlines()]
    assert [len(line["samples"]) for line in lines if "samples" in line] == [2]
    main(["eval", str(trained["sometimes"]), "--rows", "2", "--draws", "1", "--samples", "2", "--json"])
    figures = {(line := json.loads(text))["name"]: line["value"] for text in capsys.readouterr().out.splitlines()}
    assert 0 <= figures["exact"] <= figures["facts"] <= 1


def test_a_class_by_command(trained: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    def written(*argv: str) -> list[dict[str, object]]:
        main(["generate", str(trained["sometimes"]), "--rows", "2", "--json", *argv])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    plain, guided, obeyed, none = (
        written("--label", "sad", *more) for more in ((), ("--guidance", "3"), ("--guidance", "1"), ("--guidance", "0"))
    )
    assert [row["nfe"] for row in plain] == [2.0, 2.0]
    assert [row["nfe"] for row in guided] == [4.0, 4.0]
    assert [row["text"] for row in obeyed] == [row["text"] for row in plain]
    assert [row["text"] for row in none] == [row["text"] for row in written()]
    assert "ClassifierFree(scale=3.0" in str(guided[0]["sampler"])


@pytest.mark.parametrize(
    ("name", "argv", "reason"),
    [
        ("sometimes", ["--label", "sadd"], "this model has no class 'sadd'; did you mean sad?"),
        ("sometimes", ["--label", "0"], "has no class '0'; choose from bored, cheerful, lonely, sad, tired, worried"),
        ("sometimes", ["--guidance", "2"], "--guidance needs a condition: a --label, or a --source"),
        ("sometimes", ["--label", "sad", "--guidance", "-1"], "--guidance -1.0: it must be from 0 to 1,000"),
        ("sometimes", ["--source", "sad"], "this model was not trained to answer a --source"),
        ("always", [], "give one with --label: bored, cheerful"),
        ("always", ["--label", "sad", "--guidance", "2"], "this model was never trained without it"),
        ("never", ["--label", "sad"], "has no class 'sad'; it was trained without classes"),
    ],
)
def test_wrong_words_end_in_one_line(
    name: str, argv: list[str], reason: str, trained: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["generate", str(trained[name]), *argv])
    said = capsys.readouterr().err.strip()
    assert end.value.code == 2
    assert reason in said
    assert "\n" not in said


def test_classes_without_names_have_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that no run of ours made, as those of UDLM."""
    out = export(tmp_path / "bare", build())
    calls = []
    for scale in ("1", "2"):
        main(["generate", str(out), "--new", "4", "--label", "1", "--guidance", scale, "--steps", "1", "--json"])
        calls.append(json.loads(capsys.readouterr().out)["nfe"])
    assert calls == [1, 2]
    with pytest.raises(SystemExit):
        main(["generate", str(out), "--new", "4", "--label", "2"])
    assert "has no class '2'; choose from 0, 1" in capsys.readouterr().err
