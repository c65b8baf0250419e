"""Tokenizers: text to ids and back.

Text never becomes the id of bos, eos, pad or mask: whatever a user types, `encode` returns content ids, or the unknown
id. A tokenizer is a frozen dataclass and is saved with its run. Content ids come first; in our own tokenizers the
special ids follow them, with the mask last (V − 1).
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from redraft.core.vocab import Vocab

PUNCTUATION = ".", ",", "!", "?"


def split_words(text: str) -> tuple[str, ...]:
    """The words and punctuation marks of a text; `join_words` is the inverse."""
    return tuple(re.findall(r"\w+|[^\w\s]", text))


def join_words(words: Iterable[str]) -> str:
    """Join words with spaces, but without a space before a punctuation mark."""
    text = " ".join(words)
    for mark in PUNCTUATION:
        text = text.replace(f" {mark}", mark)
    return text


Special = Literal["bos", "eos", "pad", "mask"]
_SPECIALS: tuple[Special, ...] = ("bos", "eos", "pad", "mask")
TEXT8 = " abcdefghijklmnopqrstuvwxyz"
MASK_GLYPH = "▒"  # how a masked token looks in decoded text
UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # how an unknown token looks in decoded text
_WORD = re.compile(r"\w+|[^\w\s]")
_GAP = re.compile(r" (?=[.,!?;:])")
_CUSTOMARY = {
    "bos": ("<|bos|>", "<s>", "<bos>", "[BOS]", "[CLS]", "<|begin_of_text|>", "<|startoftext|>"),
    "eos": ("<|eos|>", "</s>", "<eos>", "[EOS]", "[SEP]", "<|end_of_text|>", "<|endoftext|>"),
    "pad": ("<|pad|>", "<pad>", "[PAD]"),
    "mask": ("<|mask|>", "<mask>", "[MASK]", "<|mdm_mask|>", "<|MASK|>", "|<MASK>|", "<M>", "[¨M¨]"),
}


@dataclass(frozen=True)
class Tokenizer(ABC):
    """Text ↔ ids; every subclass is final and its fields are all there is to save."""

    @property
    @abstractmethod
    def vocab(self) -> Vocab:
        """All ids, and which of them are special."""

    @property
    def merges(self) -> bool:
        """Whether one token may spell the end of one text and the beginning of the next, if they are joined."""
        return False

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Ids of the content: no bos or eos is added, and no text becomes a special id."""

    def encode_inside(self, text: str) -> list[int]:
        """Ids of a text that follows other text; some tokenizers treat the first word of a text differently."""
        return self.encode(text)

    @abstractmethod
    def piece(self, token: int) -> str:
        """The string of one content id, as `join` expects it; empty for special tokens that have no name in `Vocab`."""

    @abstractmethod
    def join(self, pieces: list[str]) -> str:
        """Join the strings of tokens to a text."""

    @property
    def known_words(self) -> tuple[str, ...]:
        """The words and marks of which every text consists; empty if a text may have any words."""
        return ()

    @property
    def letters(self) -> str:
        """The characters of which every text consists, ordered by id; empty if tokens are not characters."""
        return ""

    @property
    def unknown(self) -> int | None:
        """The id of all words outside `known_words`; None if that is empty."""
        return None

    @property
    def template(self) -> str | None:
        """The Jinja template of chats; None if there is none."""
        return None

    @property
    def begins(self) -> bool:
        """Whether every text begins with bos."""
        return self.vocab.bos is not None

    @property
    def special_names(self) -> dict[str, str]:
        """The spellings of bos, eos, pad and mask, of those that have one."""
        return {}

    @property
    def special_texts(self) -> tuple[str, ...]:
        """The spellings of all special tokens."""
        return ()

    def id_of(self, token: str) -> int | None:
        """The id of a token, by its spelling; None if there is none, or if tokens have no spelling of their own."""
        return None

    def special_text(self, token: int) -> str | None:
        """The spelling of a special token; None if the id is not special, or if special tokens have no spelling."""
        return None

    def encode_before(self, text: str) -> list[int]:
        """Encode the text before a word, without a trailing space if tokens of words begin with their space."""
        return self.encode(text)

    def decode(self, ids: Iterable[int], mask: str = MASK_GLYPH) -> str:
        """Decode ids to text: bos, eos and pad are left out, masked tokens are shown as `mask`."""
        vocab, pieces, ends = self.vocab, [], self.vocab.ends
        for token in map(int, ids):
            if not 0 <= token < vocab.size:
                raise ValueError(
                    f"id {token} is not one of the {vocab.size} ids of this tokenizer; use ids 0..{vocab.size - 1}"
                )
            if token not in ends:
                pieces.append(mask if token == vocab.mask else self.piece(token))
        return self.join([piece for piece in pieces if piece])

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[object, ...]]:
        """Rebuild copies from their fields: a copied `HubTokenizer` backend would not treat specials as text."""
        return type(self), tuple(getattr(self, entry.name) for entry in fields(self))


def token_texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """The part of the text that each token adds; a character made of several tokens is added by the last of them."""
    vocab = tokenizer.vocab
    pieces = ["" if t in vocab.ends else MASK_GLYPH if t == vocab.mask else tokenizer.piece(t) for t in ids]
    whole = tokenizer.join(list(filter(None, pieces)))
    ends = [0]
    for count in range(1, len(pieces) + 1):
        more = zip(tokenizer.join(list(filter(None, pieces[:count])))[ends[-1] :], whole[ends[-1] :], strict=False)
        ends.append(ends[-1] + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], more)))
    return [whole[lo:hi] for lo, hi in pairwise(ends)]


def _vocab(content: int, specials: tuple[Special, ...]) -> Vocab:
    """Special ids follow the content ids, in the order of _SPECIALS."""
    if specials != tuple(name for name in _SPECIALS if name in specials):
        raise ValueError(f"specials={specials!r}: choose from {_SPECIALS}, in this order and each at most once")
    return Vocab(content + len(specials), **{name: content + index for index, name in enumerate(specials)})


@dataclass(frozen=True)
class CharTokenizer(Tokenizer):
    """One id per character of a fixed alphabet; `CharTokenizer(TEXT8)` has the 27 of text8 and the mask."""

    alphabet: str
    specials: tuple[Special, ...] = ("mask",)

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) < len(self.alphabet):
            raise ValueError(f"a character occurs twice in the alphabet {self.alphabet!r}; each may occur once")

    @classmethod
    def collect(cls, texts: Iterable[str], specials: tuple[Special, ...] = ("mask",)) -> CharTokenizer:
        """Build the tokenizer of all characters in some texts, sorted."""
        return cls("".join(sorted(set().union(*texts))), specials)

    @cached_property
    def vocab(self) -> Vocab:
        return _vocab(len(self.alphabet), self.specials)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {character: token for token, character in enumerate(self.alphabet)}

    @property
    def letters(self) -> str:
        return self.alphabet

    def encode(self, text: str) -> list[int]:
        ids = self._ids
        try:
            return [ids[character] for character in text]
        except KeyError as error:
            missing = error.args[0]
            raise ValueError(
                f"character {missing!r} (U+{ord(missing):04X}) is not in the alphabet of {len(self.alphabet)}; "
                "remove it from the text, or use ByteTokenizer or BPE, which know every character"
            ) from None

    def piece(self, token: int) -> str:
        return self.alphabet[token]

    def join(self, pieces: list[str]) -> str:
        return "".join(pieces)


@dataclass(frozen=True)
class ByteTokenizer(Tokenizer):
    """One id per byte of UTF-8; bytes that are not valid UTF-8 become surrogate escapes (U+DC80..U+DCFF)."""

    specials: tuple[Special, ...] = ("eos", "pad", "mask")

    @cached_property
    def vocab(self) -> Vocab:
        return _vocab(256, self.specials)

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "surrogateescape"))

    def piece(self, token: int) -> str:
        return bytes([token]).decode("utf-8", "surrogateescape")

    def join(self, pieces: list[str]) -> str:
        return "".join(pieces).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True)
class WordTokenizer(Tokenizer):
    """One id per word or punctuation mark of a closed list, and one for everything unknown.

    Text is cut by `\\w+|[^\\w\\s]` and joined by single spaces, none before . , ! ? ; and :; other white space is lost.
    """

    words: tuple[str, ...]
    specials: tuple[Special, ...] = ("eos", "pad", "mask")

    def __post_init__(self) -> None:
        if len(set(self.words)) < len(self.words):
            raise ValueError("a word occurs twice in the list; each may occur once")
        if split := [word for word in self.words if not _WORD.fullmatch(word)]:
            raise ValueError(f"{split[0]!r} is neither one word nor one punctuation mark, so no text would ever use it")

    @classmethod
    def collect(
        cls, texts: Iterable[str], most: int, specials: tuple[Special, ...] = ("eos", "pad", "mask")
    ) -> WordTokenizer:
        """Build the tokenizer of the most frequent words in some texts; ties are in order of first appearance."""
        if most < 1:
            raise ValueError(f"{most} is not a number of words to keep; use at least 1, such as words:4096")
        counts = Counter(word for text in texts for word in _WORD.findall(text))
        return cls(tuple(word for word, _ in counts.most_common(most)), specials)

    @property
    def known_words(self) -> tuple[str, ...]:
        return self.words

    @cached_property
    def unknown(self) -> int:
        return len(self.words)

    @cached_property
    def vocab(self) -> Vocab:
        return _vocab(len(self.words) + 1, self.specials)

    @cached_property
    def _chunk(self) -> Callable[[str], list[int]]:
        """The ids of a chunk without white space; most recur, and a cache is faster than the regular expression."""
        ids = {word: token for token, word in enumerate(self.words)}
        return lru_cache(2**16)(lambda chunk: [ids.get(word, self.unknown) for word in _WORD.findall(chunk)])

    def encode(self, text: str) -> list[int]:
        return [token for chunk in map(self._chunk, text.split()) for token in chunk]

    def piece(self, token: int) -> str:
        return UNKNOWN if token == self.unknown else self.words[token]

    def join(self, pieces: list[str]) -> str:
        return _GAP.sub("", " ".join(pieces))


@dataclass(frozen=True)
class HubTokenizer(Tokenizer):
    """Any `tokenizer.json` of the tokenizers library, with its special tokens by name; a new mask is added."""

    definition: str = field(repr=False)
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    mask: str | None = "<|mask|>"
    template: str | None = field(default=None, repr=False)  # Jinja chat template, see redraft.core.text.chat_template

    @classmethod
    def load(cls, path: str | Path) -> HubTokenizer:
        """Read a `tokenizer.json`, or the one in a folder.

        Special tokens are those that a `tokenizer_config.json` beside it names, else added tokens with a customary
        name; `replace(hub, eos=...)` chooses others.
        """
        path = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
        if not path.is_file():
            raise ValueError(f"there is no tokenizer at {path}; give a tokenizer.json or the folder that holds one")
        definition, beside = path.read_text("utf-8"), path.with_name("tokenizer_config.json")
        return cls(definition, **{**_customary(definition), **_stated(beside)}, template=_template(beside))

    @property
    def special_names(self) -> dict[str, str]:
        return {name: token for name in _SPECIALS if (token := getattr(self, name)) is not None}

    @cached_property
    def _file(self) -> tokenizers.Tokenizer:
        """The tokenizer of the file, without our additions."""
        return _parse(self.definition)

    @cached_property
    def _backend(self) -> tokenizers.Tokenizer:
        backend = _parse(self.definition)
        for name, token in self.special_names.items():
            if name != "mask" and backend.token_to_id(token) is None:
                raise ValueError(f"{name}={token!r} is not a token of this tokenizer; name one that is, or None")
        backend.add_special_tokens([AddedToken(token, special=True) for token in self.special_names.values()])
        backend.encode_special_tokens = True  # a special token spelled out in text is text
        backend.no_truncation()
        backend.no_padding()
        return backend

    @cached_property
    def vocab(self) -> Vocab:
        ids = self._backend.get_vocab()
        return Vocab(max(ids.values()) + 1, **{name: ids[token] for name, token in self.special_names.items()})

    @cached_property
    def _unknown(self) -> int | None:
        """The id of unknown text; None also if eos or another named token serves as the unknown one."""
        model, ids = json.loads(self.definition)["model"], self._backend.get_vocab()
        unknown = model["unk_id"] if "unk_id" in model else ids.get(model.get("unk_token"))
        return None if unknown in [ids[token] for token in self.special_names.values()] else unknown

    @cached_property
    def _specials(self) -> frozenset[int]:
        """Ids that no text may become: all special tokens but the unknown one."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(token for token, entry in added.items() if entry.special) - {self._unknown}

    def id_of(self, token: str) -> int | None:
        return self._file.token_to_id(token)

    def token_of(self, token: int) -> str | None:
        """The spelling of an id in the file; None if the file does not have it."""
        return self._file.id_to_token(token)

    def is_special(self, token: int) -> bool:
        """Whether an id of the file is an added token, which is special."""
        entry = self._file.get_added_tokens_decoder().get(token)
        return entry is not None and entry.special

    @property
    def special_texts(self) -> tuple[str, ...]:
        return tuple(entry.content for entry in self._file.get_added_tokens_decoder().values() if entry.special)

    def special_text(self, token: int) -> str | None:
        return self.token_of(token) if self.is_special(token) else None

    def encode_before(self, text: str) -> list[int]:
        return self.encode(text.rstrip())  # a word's first token begins with the space before it

    def as_file(self, mask: bool = True) -> dict[str, Any]:
        """The contents of its tokenizer.json, with the mask token added unless the file has one or `mask` is False."""
        contents: dict[str, Any] = json.loads(self._backend.to_str() if mask else self.definition)
        return contents

    @property
    def begins(self) -> bool:
        """Whether the file puts bos before every text."""
        return self.bos is not None and self._file.encode("").ids[:1] == [self.id_of(self.bos)]

    def encode(self, text: str) -> list[int]:
        text.encode("utf-8")  # the library's own error would not name a lone surrogate
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        if self._specials.isdisjoint(ids):
            return ids
        # a model of whole words or pieces may itself contain the spelling of a special token
        if self._unknown is None:
            raise ValueError(f"the text spells a special token, and this tokenizer has no unknown token: {text[:80]!r}")
        return [self._unknown if token in self._specials else token for token in ids]

    @cached_property
    def merges(self) -> bool:
        """Whether it is byte-pair or SentencePiece; WordPiece puts the spaces between words itself."""
        decoder = json.loads(self.definition).get("decoder") or {}
        kinds = [decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", []))]
        return any(kind in ("ByteLevel", "Metaspace", "ByteFallback") for kind in kinds)

    def encode_inside(self, text: str) -> list[int]:
        for anchor in "\n.a":
            alone, both = self.encode(anchor), self.encode(anchor + text)
            if both[: len(alone)] == alone:
                return both[len(alone) :]
        return self.encode(text)  # the text joins any anchor

    def piece(self, token: int) -> str:
        if token in self._specials:
            return ""
        known = self._backend.id_to_token(token) if token != self._unknown else None
        return known or UNKNOWN  # a file may leave ids between its tokens unused

    def join(self, pieces: list[str]) -> str:
        decoder = self._backend.decoder
        return decoder.decode(pieces) if decoder else " ".join(pieces)


def _parse(definition: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(definition)
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"not a tokenizer.json of the tokenizers library: {error}") from None


def _customary(definition: str) -> dict[str, str]:
    """The special tokens that have one of the usual names; the first name listed wins."""
    added = {entry.content for entry in _parse(definition).get_added_tokens_decoder().values()}
    return {name: token for name, usual in _CUSTOMARY.items() for token in reversed(usual) if token in added}


def _stated(config: Path) -> dict[str, str]:
    """The special tokens that a `tokenizer_config.json` names, as strings or as objects with their content."""
    entries = json.loads(config.read_text("utf-8")) if config.is_file() else {}
    if not isinstance(entries, dict):
        raise ValueError(f"{config} is not a JSON object; restore it, or remove it")
    named = {name: entries[f"{name}_token"] for name in _SPECIALS if entries.get(f"{name}_token")}
    tokens: dict[str, Any] = {n: v.get("content") if isinstance(v, dict) else v for n, v in named.items()}
    if wrong := [name for name, token in tokens.items() if not isinstance(token, str)]:
        raise ValueError(f"{config}: {wrong[0]}_token is {tokens[wrong[0]]!r:.40}; it must be a string")
    return tokens


def _template(config: Path) -> str | None:
    """The chat template in a `tokenizer_config.json` or a file next to it; the default one if there are several."""
    if (alone := config.with_name("chat_template.jinja")).is_file():
        return alone.read_text("utf-8")
    template = json.loads(config.read_text("utf-8")).get("chat_template") if config.is_file() else None
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def train_bpe(texts: Iterable[str], size: int, specials: tuple[Special, ...] = ("eos", "pad", "mask")) -> HubTokenizer:
    """Train byte-level BPE with at most `size` ids, including specials; equal texts give equal tokenizers."""
    if size < 256 + len(specials):
        raise ValueError(f"size={size} has no room for 256 bytes and {len(specials)} special tokens; use a larger size")
    if size > 2**20:  # the library would reserve memory for all of it, and abort if there is none
        raise ValueError(f"size={size} is too large for a vocabulary; use at most {2**20} ids")
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(specials),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    names = {name: f"<|{name}|>" if name in specials else None for name in _SPECIALS}
    backend.add_special_tokens([token for token in names.values() if token is not None])
    return HubTokenizer(backend.to_str(), **names)
