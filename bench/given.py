"""`python -m bench.given`: fills holes in 15,000 random Unicode texts; given text must be kept byte for byte.

A third of the texts is tokenized by a byte-level BPE, a third by a WordPiece that drops capitals, accents and white
space, as BERT's does, and a third byte by byte. A text with a word that the WordPiece cannot encode must be refused,
not changed. The networks have random weights, since the written words do not matter. Rows: bench/results/given.jsonl.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bench import limit
from bench.race import Row, report, tell
from redraft import DiffusionLM, DiffusionLMConfig, Masked, TransformerConfig
from redraft.core import ByteTokenizer, HubTokenizer, Tokenizer, train_bpe
from redraft.tasks import TextModel, infill

RESULTS = Path(__file__).parent / "results" / "given.jsonl"
CASES = 5_000  # with each tokenizer
SEED_TEXT = "The red kite flew over the lake, and Anna laughed. Ünïcödé wörds, ça va? 123 "
KNOWN = "aábcdeéfghiïjklmnñoöøpqrsßtuüvwxyzABCDÉÖ .,!?'\t\n\u00a0\u2009"  # what the WordPiece can spell


def wordpiece() -> HubTokenizer:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"], show_progress=False
    )
    backend.train_from_iterator([SEED_TEXT * 4, KNOWN, " ".join(KNOWN)] * 4, trainer)
    return HubTokenizer(backend.to_str(), "[CLS]", "[SEP]", "[PAD]", "[MASK]")


def opened(tokenizer: Tokenizer) -> TextModel:
    network = TransformerConfig(width=8, layers=1, heads=1, hidden=8)
    torch.manual_seed(0)
    return TextModel(DiffusionLM(DiffusionLMConfig(Masked(tokenizer.vocab), network), tokenizer))


def character(draw: Random) -> str:
    """Any character of Unicode but brackets, which make holes; often a space or a letter."""
    kind = draw.random()
    if kind < 0.4:
        return draw.choice(KNOWN)
    while True:
        point = draw.randrange(0x110000 if kind < 0.6 else 0x3000)
        if not 0xD800 <= point < 0xE000 and chr(point) not in "[]":
            return chr(point)


def parts(draw: Random, alphabet: str | None) -> list[str]:
    def text() -> str:
        count = draw.randrange(9)
        return "".join(character(draw) if alphabet is None else draw.choice(alphabet) for _ in range(count))

    return [text() for _ in range(draw.randint(2, 4))]


def outcome(model: TextModel, given: Sequence[str], draw: Random, seed: int) -> str:
    """kept, refused, or what is wrong."""
    holes = [f"[[{draw.randint(1, 3)}]]" if draw.random() < 0.9 else "[[0-2]]" for _ in given[1:]]
    template = "".join(part + hole for part, hole in zip(given, [*holes, ""], strict=True))
    try:
        (result,) = infill(model, template, seed=seed, steps=1, draws=1)
    except ValueError as error:
        return "refused" if "does not know" in str(error) or "need a word between" in str(error) else str(error)
    whole = "".join(part + fill for part, fill in zip(given, [*result.fills, ""], strict=True))
    return "kept" if result.text.encode() == whole.encode() else f"changed: {given!r} -> {result.text!r}"


def rows(cases: int) -> Iterator[Row]:
    torch.set_num_threads(1)
    yield limit.machine("python -m bench.given")
    for name, model, alphabet in (
        ("BPE", opened(train_bpe([SEED_TEXT], 320)), None),
        ("WordPiece", opened(wordpiece()), KNOWN),
        ("bytes", opened(ByteTokenizer(("bos", "eos", "pad", "mask"))), None),
    ):
        draw = Random(name)
        outcomes = [outcome(model, parts(draw, alphabet), draw, seed) for seed in range(cases)]
        wrong = [each for each in outcomes if each not in ("kept", "refused")]
        counts = {"cases": len(outcomes), "kept": outcomes.count("kept"), "refused": outcomes.count("refused")}
        yield report(
            f"infilled texts that changed what was given, {name}", 0.0, ratio=len(wrong), **counts, wrong=wrong[:3]
        )


if __name__ == "__main__":
    sys.exit(tell(rows(CASES), RESULTS))
