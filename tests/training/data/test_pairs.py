"""Pairs of source and target: exact checking, files, framings; DiffuSeq and GENIE, which learn from them."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from conftest import randomize

from redraft.apps.cli import main
from redraft.apps.cli.run_arguments import parse_run
from redraft.core import (
    Batch,
    Condition,
    Context,
    Gaussian,
    WordTokenizer,
    bleu,
    minimum_bayes_risk,
    randomness,
    split_words,
)
from redraft.decoding import Ancestral
from redraft.models import (
    DiffusionLM,
    DiffusionLMConfig,
    Embedding,
    PredictX,
    SourceEncoder,
    SourceEncoderConfig,
    TransformerConfig,
    blank_canvas,
)
from redraft.models.checkpoints import serialization
from redraft.tasks import sample_canvases
from redraft.training import (
    STORY_LANGUAGE,
    CsvPairs,
    DataError,
    DataStats,
    DocumentRows,
    EncoderRows,
    JsonlPairs,
    Objective,
    Pair,
    PairRows,
    Run,
    SourceCoverage,
    SpanRows,
    SquaredError,
    StoryAttributes,
    StoryCorpus,
    StorySummaries,
    fit,
    load,
    load_rows,
    mean_coverage,
    presets,
)
from redraft.training.objectives.conditioning import (
    _drop_condition,
)
from redraft.training.runs import variations
from redraft.training.runs.loading import (
    init_from,
)

WORDS = WordTokenizer(("a", "b", "c", "d", "e", "f"), ("bos", "eos", "mask"))
BOS, EOS, MASK = WORDS.vocab.bos, WORDS.vocab.eos, WORDS.vocab.mask


# The stories as tasks


def test_a_story_is_what_its_source_asks_for() -> None:
    data = StoryAttributes()
    for index in range(20):
        source, target = data.pair("valid", index)
        assert data.check(source, target) == SourceCoverage(1.0, 1.0)
        assert data.document("valid", index) == target
        assert set(split_words(source)) <= set(STORY_LANGUAGE.words())
    assert data.pair("train", 0) != data.pair("valid", 0)
    assert StoryAttributes(seed=1).pair("train", 0) != data.pair("train", 0)


def test_wrong_attributes_are_counted() -> None:
    data = StoryAttributes()
    source, target = data.pair("train", 0)
    name = dict(part.split(" ", 1) for part in source.split(", "))["who"]
    other = "Leo" if name != "Leo" else "Max"
    assert data.check(source.replace(name, other), target) == SourceCoverage(pytest.approx(5 / 6), 0.0)
    assert data.check(source, target[:-1] + " !") == SourceCoverage(1.0, 0.0)  # all told, but no story
    assert data.check(source, "") == SourceCoverage(0.0, 0.0)


def test_what_stands_after_a_wrong_word_tells_nothing() -> None:
    story = STORY_LANGUAGE.parse(
        "One summer afternoon, Leo felt tired and wandered to the river. He helped a lost goose by the bridge. It "
        "belonged to Carl the carpenter. He took the goose to Carl, who danced and gave him a long wooden spoon. "
        "That night, Leo felt tired no more."
    )
    assert story is not None
    assert STORY_LANGUAGE.recognize(story.text) == story.attributes
    first = {"who": "Leo", "where": "river", "season": "summer", "mood": "tired"}
    assert STORY_LANGUAGE.recognize(story.text.replace("helped", "hopped")) == first  # three plots would go on so
    assert STORY_LANGUAGE.recognize(story.text.replace("goose by", "goose over")) == first | {"plot": "help"}
    assert STORY_LANGUAGE.recognize("One summer Leo") == {"season": "summer"}


def test_a_summary_is_judged_fact_by_fact() -> None:
    data = StorySummaries()
    source, target = data.pair("valid", 3)
    assert data.check(source, target) == SourceCoverage(1.0, 1.0)
    facts = 9  # season, hero, deed, look, thing, the preposition of the place, place, friend, trade
    wrong = target.replace(split_words(target)[3], "Nobody")
    assert data.check(source, wrong) == SourceCoverage(pytest.approx(1 - 1 / facts), 0.0)
    assert data.check(source, "") == SourceCoverage(0.0, 0.0)
    with pytest.raises(ValueError, match="not a story of the grammar"):
        data.check("Once upon a time.", target)


def test_faithful_is_the_mean() -> None:
    data = StoryAttributes(topics=("who",))
    pairs = [data.pair("test", index) for index in range(2)]
    assert mean_coverage(data, [p.source for p in pairs], [pairs[0].target, ""]) == SourceCoverage(0.5, 0.5)
    with pytest.raises(ValueError, match="texts is empty"):
        mean_coverage(data, [], [])
    with pytest.raises(ValueError, match="stories have no attribute 'color'"):
        StoryAttributes(topics=("color",))


# Files


def test_pairs_from_json_lines(tmp_path: Path) -> None:
    lines = [{"source": f"a {n}", "target": f"b {n}"} for n in range(20)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)))
    data = JsonlPairs((str(file),))
    assert list(data.pairs("valid", DataStats())) == [Pair("a 18", "b 18")]
    assert len(list(data.pairs("train", tally := DataStats()))) == tally.documents == 18
    assert list(data.documents("test", DataStats())) == ["b 19"]  # as plain texts they are the targets


def test_a_line_without_a_source_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"source": "a", "target": "b"}\n{"target": "b"}\n')
    with pytest.raises(DataError, match=r"pairs\.jsonl:2: .*'source'"):
        list(JsonlPairs((str(file),)).pairs("train", DataStats()))
    tally = DataStats()
    assert len(list(JsonlPairs((str(file),), on_bad="skip").pairs("train", tally))) == 1
    assert tally.bad == 1


def test_tables_with_other_columns_and_bad_lines(tmp_path: Path) -> None:
    file = tmp_path / "table.tsv"
    file.write_text("from\tto\nx\ty\nlonely\n")
    data = CsvPairs((str(file),), source="from", target="to", delimiter="\t", on_bad="skip")
    tally = DataStats()
    assert list(data.pairs("train", tally)) == [Pair("x", "y")]
    assert tally.bad == 1
    assert "table.tsv:3" in tally.problems[0]
    (tmp_path / "latin.csv").write_bytes(b"mr,ref\nCaf\xe9,x\n")
    with pytest.raises(DataError, match="UTF-8"):
        list(CsvPairs((str(tmp_path / "latin.csv"),)).pairs("train", DataStats()))


# Framings


class Given:
    """Some pairs, in every split."""

    def __init__(self, *pairs: Pair) -> None:
        self.held = pairs

    def pairs(self, split: str, tally: DataStats) -> Sequence[Pair]:
        return self.held

    def documents(self, split: str, tally: DataStats) -> Sequence[str]:
        return [pair.target for pair in self.held]


TWO = Given(Pair("a b", "c d e"), Pair("f", "a b c d e f a"))


def test_one_row_holds_source_and_target() -> None:
    batch = load_rows(TWO, "train", WORDS, PairRows(8, source=2)).take([0, 1])
    assert batch.tokens.tolist() == [[0, 1, BOS, 2, 3, 4, EOS, EOS], [5, BOS, 0, 1, 2, 3, 4, 5]]
    assert batch.learn.tolist() == [[False] * 3 + [True] * 5, [False] * 2 + [True] * 6]
    assert batch.pad is None
    padded = load_rows(TWO, "train", WORDS, PairRows(8, source=2, fill_with_eos=False)).take([0])
    assert padded.pad is not None
    assert padded.pad.tolist() == [[False] * 7 + [True]]
    joint = load_rows(TWO, "train", WORDS, PairRows(8, source=2, joint=True)).take([0])
    assert bool(joint.learn.all())


def test_what_does_not_fit_is_cut_and_counted() -> None:
    rows = load_rows(TWO, "train", WORDS, PairRows(6, source=1))
    assert rows.take([0]).tokens.tolist() == [[0, BOS, 2, 3, 4, EOS]]
    assert rows.tally.cut == 2  # a source, and a target


def test_a_source_beside_the_row() -> None:
    batch = load_rows(TWO, "train", WORDS, EncoderRows(6, source=3)).take([0, 1])
    assert batch.tokens.tolist() == [[BOS, 2, 3, 4, EOS, EOS], [BOS, 0, 1, 2, 3, 4]]
    assert batch.condition.source is not None
    assert batch.condition.source_pad is not None
    assert batch.condition.source.tolist() == [[0, 1, EOS], [5, EOS, EOS]]
    assert batch.condition.source_pad.tolist() == [[False] * 3, [False, False, True]]
    assert bool((batch.learn == torch.tensor([False] + [True] * 5)).all())


def test_a_span_is_written_from_the_rest() -> None:
    """Put in the place of the mask it gives the document back; it is three tenths of it, and not always the same."""
    words = WordTokenizer(STORY_LANGUAGE.words(), ("bos", "eos", "mask"))
    rows, begins = load_rows(StoryCorpus(), "train", words, SpanRows(24, source=80)), set()
    for index in range(8):
        ids = words.encode(StoryCorpus().document("train", index))
        row = rows.row(index)
        assert row.source is not None
        source, target = [list(map(int, part)) for part in (row.source, row.ids)]
        span = target[1 : target.index(words.vocab.eos)]
        at = source.index(words.vocab.mask)
        assert source[:at] + span + source[at + 1 : -1] == ids
        assert len(span) == round(0.3 * len(ids))
        begins.add(at)
    assert len(begins) > 4
    assert list(rows.row(3).ids) == list(rows.row(3).ids)


def test_framings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="give it a bos"):
        load_rows(TWO, "train", WordTokenizer(("a",)), PairRows(8, source=2))
    with pytest.raises(DataError, match="no pairs of source and target"):
        load_rows(StoryCorpus(), "train", WORDS, EncoderRows(8))
    with pytest.raises(DataError, match="give it an eos"):
        load_rows(TWO, "train", WordTokenizer(("a",), ("bos",)), EncoderRows(8))
    with pytest.raises(ValueError, match="no room for a target"):
        PairRows(8, source=7)
    with pytest.raises(ValueError, match="use 0 < span_fraction < 1"):
        SpanRows(8, span_fraction=1.0)


@pytest.mark.parametrize(
    "name", ["diffuseq_tiny", "diffuseq_summary_tiny", "genie_tiny", "genie_summary_tiny", "genie_cpd_tiny"]
)
def test_presets_of_pairs(name: str) -> None:
    """They can be saved, no row is cut, and all of the source and target are known words."""
    run = presets.TINY[name]()
    assert serialization.from_json(serialization.to_json(run)) == run
    rows = load_rows(run.data, "train", run.tokenizer, run.framing)
    batch = rows.take(range(50))
    assert rows.tally.cut == 0
    assert not bool((batch.tokens == run.tokenizer.unknown).any())
    assert batch.condition.source is None or not bool((batch.condition.source == run.tokenizer.unknown).any())


# Minimum Bayes risk


def test_bleu_by_hand() -> None:
    assert bleu(["a b c d e"], ["a b c d e"]) == pytest.approx(1.0)
    assert bleu(["x y"], ["a b"]) == 0.0
    # p_1 = 3/4, p_2 = (1 + 1)/(3 + 1), p_3 = (0 + 1)/(2 + 1), p_4 = (0 + 1)/(1 + 1)
    assert bleu(["a b x d"], ["a b c d"]) == pytest.approx((3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** 0.25)
    assert bleu(["a b c d"], ["a b c d e f g h"]) == pytest.approx(2.718281828 ** (1 - 8 / 4))
    assert bleu(["a a a"], ["a b c"]) == pytest.approx((1 / 3 * 1 / 3 * 1 / 2 * 1) ** 0.25)


def test_bleu_of_several_references() -> None:
    """Each n-gram counts as often as in the reference that has it most; the closest length decides."""
    assert bleu(["a b c d"], [["x y", "a b c d"]]) == pytest.approx(1.0)
    assert bleu(["a b c d"], [["a b", "c d"]]) == pytest.approx((4 / 4 * 3 / 4 * 1 / 3 * 1 / 2) ** 0.25)
    assert bleu(["a a a b"], [["a a", "b a b b"]]) == pytest.approx((3 / 4 * 3 / 4 * 1 / 3 * 1 / 2) ** 0.25)
    assert bleu(["a b c d"], [["a b c d e f", "a b c d e"]]) == pytest.approx(2.718281828 ** (1 - 5 / 4))
    assert bleu(["a b c d"], [["a b c d e", "a b c"]]) == bleu(["a b c d"], [["a b c", "a b c d e"]]) == 1.0


def test_minimum_risk_does_not_depend_on_the_order() -> None:
    candidates = ["a b c d", "a b c e", "a b c d e", "x y z"]
    chosen = minimum_bayes_risk(candidates)
    assert chosen == "a b c d"
    assert {minimum_bayes_risk(candidates[i:] + candidates[:i]) for i in range(4)} == {chosen}
    assert minimum_bayes_risk(["b", "a"]) == minimum_bayes_risk(["a", "b"])
    with pytest.raises(ValueError, match="nothing to choose from"):
        minimum_bayes_risk([])


def test_minimum_risk_is_that_of_diffuseq() -> None:
    """Its `eval_seq2seq.py` leaves a candidate's likeness to itself out; that is 1 for all, so nothing changes."""
    draw = Random(0)
    for _ in range(50):
        candidates = [" ".join(draw.choices("abcd", k=draw.randint(1, 8))) for _ in range(draw.randint(2, 6))]
        alike = [
            math.fsum(bleu([one], [other]) for j, other in enumerate(candidates) if i != j)
            for i, one in enumerate(candidates)
        ]
        chosen = alike[candidates.index(minimum_bayes_risk(candidates))]
        assert chosen == pytest.approx(max(alike), abs=1e-12)


# DiffuSeq


def small(encoder: bool = False) -> DiffusionLM:
    parts = (SourceEncoderConfig(TransformerConfig(width=16, layers=1, heads=2)),) if encoder else ()
    network = TransformerConfig(width=16, layers=2, heads=2, time=8)
    made = DiffusionLMConfig(Gaussian(WORDS.vocab), network, PredictX(), codec=Embedding(8), parts=parts)
    return randomize(DiffusionLM(made, WORDS), seed=0)


def test_the_source_stays_clean_at_every_step() -> None:
    model = small()
    batch = load_rows(TWO, "train", WORDS, PairRows(8, source=2)).take([0, 1])
    assert model.codec is not None
    source = model.codec.encode(batch.tokens)
    seen = list(Ancestral(5)(model, model.process, blank_canvas(model, batch), rng=randomness.rng(0, 2)))
    assert len(seen) == 6
    for canvas in seen:
        assert torch.equal(canvas.z[~batch.learn], source[~batch.learn])
        assert not torch.equal(canvas.z[batch.learn], source[batch.learn])


def test_noise_falls_on_the_target_alone() -> None:
    """The loss does not change with the noise of the source, and only learned places count."""
    model, batch = small(), load_rows(TWO, "train", WORDS, PairRows(8, source=2)).take([0, 1])
    t = torch.where(batch.learn, 0.7, 0.0)
    encoded = model.read(batch)
    noised = model.process.noise(encoded.x, t, rng=randomness.rng(0, 2))
    assert torch.equal(noised.z[~batch.learn], encoded.x[~batch.learn])
    loss = Objective(SquaredError())(model, batch, rng=randomness.rng(1, 2))
    assert loss.count.tolist() == [5, 6]


def test_a_canvas_with_a_source_is_that_of_its_row() -> None:
    model = small()
    batch = load_rows(TWO, "train", WORDS, PairRows(8, source=2)).take([0, 1])
    blank, written = blank_canvas(model, batch), model.compose([[5], [6]], ["a b", "f"])
    assert torch.equal(blank.fixed, written.fixed)
    assert torch.equal(blank.z[blank.fixed], written.z[written.fixed])
    one = model.canvas("c", new=3, rows=2, source="a b")
    assert one.fixed.tolist() == [[True] * 4 + [False] * 3] * 2


def test_the_text_is_the_target() -> None:
    model = small()
    whole = Batch(torch.tensor([[0, 1, BOS, 2, 3, EOS, EOS]]), torch.zeros(1, 7, dtype=torch.bool))
    assert model.text(blank_canvas(model, whole)) == ["c d"]


# GENIE


def genie_batch() -> Batch:
    return load_rows(TWO, "train", WORDS, EncoderRows(6, source=4)).take([0, 1])


def test_padding_of_a_source_never_matters() -> None:
    """Neither its ids nor its number; the original attends to it."""
    model, batch = small(encoder=True), genie_batch()
    assert batch.condition.source is not None
    assert batch.condition.source_pad is not None
    x, t = model.read(batch).x, torch.full((2, 1), 0.5)
    base = model.predict(x, t, model.read(batch).context).x
    other = batch.condition.source.masked_fill(batch.condition.source_pad, 3)
    assert torch.equal(
        model.predict(x, t, model.read(replace(batch, condition=replace(batch.condition, source=other))).context).x,
        base,
    )
    longer = torch.nn.functional.pad(batch.condition.source, (0, 3), value=4)
    pad = torch.nn.functional.pad(batch.condition.source_pad, (0, 3), value=True)
    longer_batch = replace(batch, condition=Condition(source=longer, source_pad=pad))
    assert torch.allclose(model.predict(x, t, model.read(longer_batch).context).x, base, atol=1e-5)
    changed = batch.condition.source.clone()
    changed[0, 0] = 5
    again = model.predict(
        x, t, model.read(replace(batch, condition=replace(batch.condition, source=changed))).context
    ).x
    assert not torch.allclose(again[0], base[0], atol=1e-3)  # the source itself does matter, of its own row alone
    assert torch.equal(again[1], base[1])


def test_rows_that_lose_their_source_see_none() -> None:
    model, batch = small(encoder=True), genie_batch()
    x, t = model.read(batch).x, torch.full((2, 1), 0.5)
    context, keys = model.read(batch).context, randomness.rng(0, 2)
    alone = model.predict(x, t, Context()).x
    assert torch.allclose(model.predict(x, t, _drop_condition(model, context, 1.0, rng=keys)).x, alone, atol=1e-6)
    assert _drop_condition(model, context, 0.0, rng=keys) is context
    lost = (keys.uniform(1) < 0.5).squeeze(-1)
    some = model.predict(x, t, _drop_condition(model, context, 0.5, rng=keys)).x
    assert torch.allclose(some, torch.where(lost[:, None, None], alone, model.predict(x, t, context).x), atol=1e-6)


def test_how_many_rows_lose_their_source() -> None:
    model, batch = small(encoder=True), genie_batch()
    many = model.read(batch).context.rows(torch.zeros(4000, dtype=torch.int64))
    dropped = _drop_condition(model, many, 0.1, rng=randomness.rng(0, 4000))
    assert dropped.condition.source_pad is not None
    assert float(dropped.condition.source_pad[:, 1:].all(-1).float().mean()) == pytest.approx(0.1, abs=0.02)


def test_encoder_and_cross_attention_learn() -> None:
    model, batch = small(encoder=True), genie_batch()
    Objective(SquaredError(), drop_condition=0.1)(model, batch, rng=randomness.rng(0, 2)).mean.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert all(float(p.grad.abs().max()) > 0 for p in model.part(SourceEncoder).parameters() if p.grad is not None)


def test_a_canvas_for_an_encoder_is_that_of_its_batch() -> None:
    model, batch = small(encoder=True), genie_batch()
    blank, written = blank_canvas(model, batch), model.canvas(["", ""], new=5, source=["a b", "f"])
    assert torch.equal(blank.fixed, written.fixed)
    assert blank.context.condition.source is not None
    assert written.context.condition.source is not None
    assert torch.equal(blank.context.condition.source, written.context.condition.source)
    assert blank.context.condition.source_pad is not None
    assert torch.equal(blank.context.condition.source_pad, written.context.condition.source_pad)
    texts = sample_canvases(model, Ancestral(3), written, seed=1).texts
    assert texts == sample_canvases(model, Ancestral(3), blank, seed=1, batch=1).texts


def test_sources_where_there_are_none() -> None:
    model, batch = small(), genie_batch()
    with pytest.raises(ValueError, match="no encoder to read a source"):
        model.read(batch)
    with pytest.raises(ValueError, match="2 sources for 1 rows"):
        model.compose([[3]], ["a", "b"])
    run = presets.mdlm_tiny()
    with pytest.raises(ValueError, match="cannot read sources"):
        DiffusionLM(run.model, run.tokenizer).canvas(new=3, source="One")
    genie = presets.genie_tiny().model
    encoder = genie.part(SourceEncoderConfig)
    assert encoder is not None
    with pytest.raises(ValueError, match="time=None"):
        genie.with_part(SourceEncoderConfig(replace(encoder.network, time=8)))
    with pytest.raises(ValueError, match="EncoderRows or SpanRows"):
        variations.with_encoder(presets.diffuseq_tiny())


# Both learn


def short(run: Run, steps: int) -> Run:
    network = replace(run.model.network, width=32, heads=4)
    model = replace(run.model, network=network)
    if (encoder := run.model.part(SourceEncoderConfig)) is not None:
        model = model.with_part(SourceEncoderConfig(replace(encoder.network, width=32, heads=4, layers=1)))
    few = replace(run, steps=steps, batch=4, eval_every=steps, eval_rows=2, samples=2, log_every=steps // 3)
    return replace(few, model=model, sampler=Ancestral(2))


@pytest.mark.parametrize("name", ["diffuseq_tiny", "genie_tiny"])
def test_training_learns_and_writes_answers(name: str, tmp_path: Path) -> None:
    model = fit(short(presets.TINY[name](), 18), tmp_path, quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    bits = [line["train_loss_bits_per_token"] for line in lines if "train_loss_bits_per_token" in line]
    assert len(bits) == 3
    assert bits[-1] < 0.95 * bits[0]
    (written,) = [line["samples"] for line in lines if "samples" in line]
    assert len(written) == 2
    source = StoryAttributes().pair("test", 0).source
    assert len(sample_canvases(model, Ancestral(2), model.canvas(new=9, rows=3, source=source)).texts) == 3


def test_targets_alone_teach_any_model(tmp_path: Path) -> None:
    """Pairs are also documents: what a model learns that sees no source."""
    run = replace(presets.mdlm_tiny(), data=StoryAttributes(), steps=1, eval_rows=2, samples=1)
    assert isinstance(run.framing, DocumentRows)
    rows = load_rows(run.data, "train", run.tokenizer, run.framing)
    assert run.tokenizer.decode(rows.take([4]).tokens[0].tolist()) == StoryAttributes().pair("train", 4).target


# The command line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pairs")
    for name in ("diffuseq_tiny", "genie_tiny"):
        fit(replace(short(presets.TINY[name](), 3), samples=0), folder / name, quiet=True)
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["diffuseq_tiny", "genie_tiny"])
def test_a_source_by_command(name: str, trained: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    source = "who Leo, friend Carl, where river, season summer, mood tired, plot help"
    main(["generate", str(trained[name]), "One", "--source", source, "--rows", "2", "--steps", "2", "--json"])
    found = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert [text.split(" ")[0].rstrip(".,") for text in found] == ["One", "One"]
    for argv, reason in (([], "give one"), (["--source", "who Rumpelstiltskin"], "does not know 'Rumpelstiltskin'")):
        with pytest.raises(SystemExit) as end:
            main(["generate", str(trained[name]), *argv])
        assert end.value.code == 2
        assert reason in capsys.readouterr().err
    main(["eval", str(trained[name]), "--rows", "2", "--draws", "1", "--samples", "2", "--json"])
    figures = {(line := json.loads(text))["name"]: line["value"] for text in capsys.readouterr().out.splitlines()}
    assert 0 <= figures["exact"] <= figures["facts"] <= 1


def test_what_was_pre_trained_is_a_base(tmp_path: Path) -> None:
    fit(replace(short(presets.genie_cpd_tiny(), 3), samples=0, steps=1), tmp_path / "cpd", quiet=True)
    base = load(tmp_path / "cpd").state_dict()
    for run in (presets.genie_tiny(), presets.genie_summary_tiny()):
        init_from(model := DiffusionLM(short(run, 3).model), tmp_path / "cpd")
        assert all(torch.equal(weight, base[name]) for name, weight in model.state_dict().items() if name in base)
        assert base.keys() & model.state_dict().keys()


def test_recipes_of_pairs(tmp_path: Path) -> None:
    """A folder of pairs by `--data`, its words from sources and targets, a sign between them; no other data."""
    for name in ("trainset", "devset", "testset_w_refs"):
        (tmp_path / f"{name}.csv").write_text("mr,ref\nname[Aromi],Aromi is a pub.\n")
    run = parse_run("diffuseq_e2e", [str(tmp_path)], "words:20")
    words = run.tokenizer
    assert isinstance(words, WordTokenizer)
    assert {"name", "[", "pub"} <= set(words.words)
    assert words.vocab.bos is not None
    assert load_rows(run.data, "train", run.tokenizer, run.framing).take([0]).learn.sum() == 104 - 5
    for name in ("genie_e2e", "ld4tg_codec_e2e", "ld4tg_e2e"):
        beside = parse_run(name, [str(tmp_path)], "words:20")
        assert beside.tokenizer == words
        row = load_rows(beside.data, "train", words, beside.framing).take([0])
        assert words.decode(row.tokens[0].tolist()) == "Aromi is a pub.", "from the first place on"
        assert row.condition.source is not None
        assert words.decode(row.condition.source[0].tolist()) == "name [ Aromi ]"
    with pytest.raises(ValueError, match="trains on pairs of source and target"):
        parse_run("genie_tiny", [str(tmp_path / "trainset.csv")])


def test_another_tokenizer_reaches_the_encoder_and_the_codec() -> None:
    genie = presets.genie_tiny().with_tokenizer(WORDS)
    assert genie.model.vocab.size == genie.model.io.writes == WORDS.vocab.size
    ssd = presets.ssd_tiny().with_tokenizer(WORDS)
    assert (ssd.model.io.reads, ssd.model.io.vectors) == (WORDS.vocab.size, True)
