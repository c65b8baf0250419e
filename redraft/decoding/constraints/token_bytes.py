"""The bytes that each token adds to a text, so that an automaton on bytes can read tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from redraft.core.text.tokenizers import UNKNOWN, ByteTokenizer, HubTokenizer, Tokenizer

_SPACE = "▁"  # SentencePiece's character for a space


@dataclass(frozen=True)
class _TokenBytes:
    """The bytes of every id; None for special, unknown and empty tokens, which constrained text cannot contain."""

    inner: tuple[bytes | None, ...]  # bytes of each token after other tokens
    first: tuple[bytes | None, ...]  # bytes of each token at the beginning of the text
    joins_words: bool = False  # decoding puts spaces between words, so a hole begins without one, as a text does

    def at(self, text_begins: bool) -> tuple[bytes | None, ...]:
        """The bytes of each token at the beginning of the constrained part; `text_begins` if the text begins there."""
        return self.first if text_begins or self.joins_words else self.inner


@lru_cache(16)
def _token_bytes(tokenizer: Tokenizer) -> _TokenBytes:
    """Return the bytes of a tokenizer's tokens; raises if they depend on more than whether the text begins there."""
    token_bytes = _read_tokenizer(tokenizer)
    _require_consistent(tokenizer, token_bytes)
    return token_bytes


def _read_tokenizer(tokenizer: Tokenizer) -> _TokenBytes:
    vocab = tokenizer.vocab
    special = {vocab.bos, vocab.eos, vocab.pad, vocab.mask}
    pieces = ["" if token in special else tokenizer.piece(token) for token in range(vocab.size)]
    pieces = ["" if piece == UNKNOWN else piece for piece in pieces]
    if isinstance(tokenizer, ByteTokenizer):
        return _same_everywhere(tuple(piece.encode("utf-8", "surrogateescape") or None for piece in pieces))
    if isinstance(tokenizer, HubTokenizer):
        return _read_hub_tokenizer(tokenizer, pieces)
    anchor = next((piece for piece in pieces if piece.isalnum()), next(filter(None, pieces), ""))
    begin = len(tokenizer.join([anchor]))
    first = tuple(tokenizer.join([piece]).encode() if piece else None for piece in pieces)
    inner = tuple(tokenizer.join([anchor, piece])[begin:].encode() if piece else None for piece in pieces)
    return _TokenBytes(inner, first, joins_words=inner != first)


def _same_everywhere(pieces: tuple[bytes | None, ...]) -> _TokenBytes:
    return _TokenBytes(pieces, pieces)


def _read_hub_tokenizer(tokenizer: HubTokenizer, pieces: list[str]) -> _TokenBytes:
    """Read pieces by the decoder of the file: byte-level BPE (GPT-2), or SentencePiece with ▁ and <0x0A> (Llama)."""
    decoder = json.loads(tokenizer.definition).get("decoder") or {}
    kinds = [decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", []))]
    if "ByteLevel" in kinds:
        return _same_everywhere(tuple(_byte_level_bytes(piece) or None for piece in pieces))
    if "Metaspace" in kinds or "ByteFallback" in kinds:
        inner = tuple(_sentence_piece_bytes(piece) or None for piece in pieces)
        strips = "Metaspace" in kinds or "Strip" in kinds
        first = tuple(piece[1:] if strips and piece and piece.startswith(b" ") else piece for piece in inner)
        return _TokenBytes(inner, tuple(piece or None for piece in first))
    raise ValueError(
        f"constraints do not support a tokenizer with the decoder {decoder.get('type')}; "
        "use bytes, characters, words, byte-level BPE or SentencePiece"
    )


@lru_cache(1)
def _byte_characters() -> dict[str, int]:
    """The byte for each character of byte-level BPE: printable bytes are themselves, others begin at U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _byte_level_bytes(piece: str) -> bytes:
    byte_of = _byte_characters()
    if all(character in byte_of for character in piece):
        return bytes(byte_of[character] for character in piece)
    return piece.encode()  # an added token is plain text


def _sentence_piece_bytes(piece: str) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(_SPACE, " ").encode()


def _require_consistent(tokenizer: Tokenizer, token_bytes: _TokenBytes, rounds: int = 32) -> None:
    """Raise unless random sequences of tokens decode to their bytes."""
    usable = np.array([token for token, piece in enumerate(token_bytes.inner) if piece and token_bytes.first[token]])
    if not len(usable):
        raise ValueError("this tokenizer has no token that spells text; use another tokenizer")
    random_bits = np.asarray(np.random.Philox(0).random_raw(8 * rounds)).reshape(rounds, 8)
    for ids in usable[random_bits % len(usable)].tolist():
        expected = (token_bytes.first[ids[0]] or b"") + b"".join(token_bytes.inner[token] or b"" for token in ids[1:])
        if tokenizer.decode(ids) != expected.decode("utf-8", "replace"):
            raise ValueError(
                f"constraints do not support this tokenizer: tokens {ids} decode to {tokenizer.decode(ids)!r:.80}, "
                f"but their bytes are {expected.decode('utf-8', 'replace')!r:.80}"
            )
