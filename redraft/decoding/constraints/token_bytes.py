"""Which bytes each token adds to a text: what an automaton on bytes needs to read tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redraft.core.text.tokenizers import UNKNOWN, ByteTokenizer, HubTokenizer, Tokenizer

_SPACE = "▁"  # how SentencePiece writes a space


@dataclass(frozen=True)
class _TokenBytes:
    """The bytes of every id; None for ids that no constrained text may have: special, unknown and empty ones."""

    inner: tuple[bytes | None, ...]  # behind other tokens
    first: tuple[bytes | None, ...]  # at the beginning of the text
    spaced: bool = False  # spaces come from joining words, so a hole begins without one too

    def at(self, text_begins: bool) -> tuple[bytes | None, ...]:
        """The bytes of a token at the beginning of the constrained part."""
        return self.first if text_begins or self.spaced else self.inner


@lru_cache(16)
def _token_bytes(tokenizer: Tokenizer) -> _TokenBytes:
    """What the tokens of a tokenizer spell; an error if that depends on more than whether the text begins there."""
    found = _spelled(tokenizer)
    _require_right(tokenizer, found)
    return found


def _spelled(tokenizer: Tokenizer) -> _TokenBytes:
    vocab = tokenizer.vocab
    named = {vocab.bos, vocab.eos, vocab.pad, vocab.mask}
    pieces = ["" if token in named else tokenizer.piece(token) for token in range(vocab.size)]
    pieces = ["" if piece == UNKNOWN else piece for piece in pieces]
    if isinstance(tokenizer, ByteTokenizer):
        return _alike(tuple(piece.encode("utf-8", "surrogateescape") or None for piece in pieces))
    if isinstance(tokenizer, HubTokenizer):
        return _of_hub(tokenizer, pieces)
    anchor = next((piece for piece in pieces if piece.isalnum()), next(filter(None, pieces), ""))
    begin = len(tokenizer.join([anchor]))
    first = tuple(tokenizer.join([piece]).encode() if piece else None for piece in pieces)
    inner = tuple(tokenizer.join([anchor, piece])[begin:].encode() if piece else None for piece in pieces)
    return _TokenBytes(inner, first, spaced=inner != first)


def _alike(pieces: tuple[bytes | None, ...]) -> _TokenBytes:
    return _TokenBytes(pieces, pieces)


def _of_hub(tokenizer: HubTokenizer, pieces: list[str]) -> _TokenBytes:
    """By the decoder of the file: bytes written as letters (GPT-2), or ▁ for spaces and <0x0A> for bytes (Llama)."""
    decoder = json.loads(tokenizer.definition).get("decoder") or {}
    kinds = [decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", []))]
    if "ByteLevel" in kinds:
        return _alike(tuple(_of_letters(piece) or None for piece in pieces))
    if "Metaspace" in kinds or "ByteFallback" in kinds:
        inner = tuple(_of_sentence_piece(piece) or None for piece in pieces)
        strips = "Metaspace" in kinds or "Strip" in kinds
        first = tuple(piece[1:] if strips and piece and piece.startswith(b" ") else piece for piece in inner)
        return _TokenBytes(inner, tuple(piece or None for piece in first))
    raise ValueError(
        f"patterns do not know how a tokenizer with the decoder {decoder.get('type')} spells text; "
        "use one of bytes, characters, words, byte-level BPE or SentencePiece"
    )


@lru_cache(1)
def _letters() -> dict[str, int]:
    """The letters that stand for bytes in byte-level BPE: printable ones for themselves, others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _of_letters(piece: str) -> bytes:
    letters = _letters()
    if all(letter in letters for letter in piece):
        return bytes(letters[letter] for letter in piece)
    return piece.encode()  # an added token, which is plain text


def _of_sentence_piece(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(_SPACE, " ").encode()


def _require_right(tokenizer: Tokenizer, found: _TokenBytes, rounds: int = 32) -> None:
    """Texts of random tokens must be what the tokenizer makes of them."""
    known = np.array([token for token, piece in enumerate(found.inner) if piece and found.first[token]])
    if not len(known):
        raise ValueError("this tokenizer has no token that spells text")
    numbers = np.asarray(np.random.Philox(0).random_raw(8 * rounds)).reshape(rounds, 8)
    for ids in known[numbers % len(known)].tolist():
        spelled = (found.first[ids[0]] or b"") + b"".join(found.inner[token] or b"" for token in ids[1:])
        if tokenizer.decode(ids) != spelled.decode("utf-8", "replace"):
            raise ValueError(
                f"patterns cannot follow this tokenizer: tokens {ids} make {tokenizer.decode(ids)!r:.80}, "
                f"not {spelled.decode('utf-8', 'replace')!r:.80}"
            )
