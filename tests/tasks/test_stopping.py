"""Stop strings: a text is cut before the first one, costs no more network calls, and is otherwise the same text."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers

import redraft
from redraft.core import (
    ByteTokenizer,
    CharTokenizer,
    HubTokenizer,
    Insertion,
    Interpolating,
    Masked,
    TokenProcess,
    WordTokenizer,
)
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    DiffusionLM,
    DiffusionLMConfig,
    Full,
    TransformerConfig,
)
from redraft.tasks import ArgumentError
from redraft.tasks.engine.stop_strings import StopStrings

WORDS = WordTokenizer(("a", "cat", "sat", "on", "the", "mat", ".", "big"), ("bos", "eos", "pad", "mask"))
ENDLESS = WordTokenizer(("a", "cat", "sat", "on", "the", "mat", ".", "big"), ("bos", "mask"))

LETTERS = CharTokenizer("abcehst ", ("eos", "mask"))


def chat() -> HubTokenizer:
    """Bytes, and two special tokens besides the end token, one of which ends a turn."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    specials = ("<|eos|>", "<|eot|>", "<|turn|>", "<|mask|>")
    backend.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return HubTokenizer(backend.to_str(), eos="<|eos|>", mask="<|mask|>")


def model_of(
    pattern: AttentionPattern = Full(), tokenizer: Any = WORDS, process: TokenProcess | None = None
) -> DiffusionLM:
    process = process or Masked(tokenizer.vocab)
    more: dict[str, Any] = {"time": 8, "gaps": 12} if isinstance(process, Insertion) else {}
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, pattern=pattern, rotary=100.0, **more)
    head = redraft.models.Softmax() if isinstance(process, Interpolating) else redraft.models.Subs()
    torch.manual_seed(0)
    model = DiffusionLM(DiffusionLMConfig(process, network, head), tokenizer)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0, 0.5)
    return model


HOW: dict[str, tuple[AttentionPattern, dict[str, Any]]] = {
    "whole row": (Full(), {"sampler": "confidence", "steps": 12}),
    "several at once": (Full(), {"sampler": "threshold", "threshold": 0.3}),
    "from the left": (Full(), {"sampler": "left-to-right", "steps": 12}),
    "semi-autoregressive": (Full(), {"sampler": "confidence", "steps": 4, "decode_block": 4}),
    "with a dual cache": (Full(), {"sampler": "confidence", "steps": 4, "decode_block": 4, "cache": "dual"}),
    "blocks": (BlockCausal(3), {"sampler": "confidence", "steps": 3}),
    "causal": (Causal(), {}),
    "ancestral": (Full(), {"sampler": "ancestral", "steps": 6}),
}


@pytest.mark.parametrize("tokenizer", [WORDS, ENDLESS, LETTERS], ids=["words", "no end token", "letters"])
@pytest.mark.parametrize("how", HOW)
def test_it_is_the_free_text_up_to_the_stop_string(how: str, tokenizer: Any) -> None:
    pattern, options = HOW[how]
    model = model_of(pattern, tokenizer)
    free = redraft.generate(model, ["a cat", "the"], max_new_tokens=12, n=2, seed=3, **options)
    for at in (1, 5, 9):
        stops = tuple({text.new.strip()[at : at + 2] for text in free} - {""})
        if not stops:
            continue
        cut = redraft.generate(model, ["a cat", "the"], max_new_tokens=12, n=2, seed=3, stop=stops, **options)
        for whole, text in zip(free, cut, strict=True):
            places = [place for stop in stops if (place := whole.new.find(stop)) >= 0]
            assert text.new == (whole.new[: min(places)] if places else whole.new)
            assert text.stop == ("stop" if places else whole.stop)
            assert text.text == "".join(text.pieces)
            assert len(text.tokens) == len(text.given) == len(text.step) == len(text.confidence)
        assert cut.nfe <= free.nfe
        assert cut.new_tokens <= free.new_tokens


def test_early_ends_save_network_calls() -> None:
    for how in ("from the left", "semi-autoregressive", "blocks", "causal"):
        pattern, options = HOW[how]
        model = model_of(pattern, ENDLESS)
        free = redraft.generate(model, "a", max_new_tokens=12, seed=3, **options)
        first = free[0].new.split()[0]
        assert redraft.generate(model, "a", max_new_tokens=12, seed=3, stop=first, **options).nfe < free.nfe / 2


def test_the_prompt_does_not_count() -> None:
    model = model_of(Causal())
    free = redraft.generate(model, "the cat sat", max_new_tokens=4, seed=1)
    assert redraft.generate(model, "the cat sat", max_new_tokens=4, seed=1, stop="the cat")[0].text == free[0].text


@pytest.mark.parametrize("how", ["whole row", "from the left", "semi-autoregressive", "blocks", "causal", "ancestral"])
def test_what_is_streamed_never_shows_a_stop_string(how: str) -> None:
    """Not even its beginning, which would have to be taken back."""
    pattern, options = HOW[how]
    model = model_of(pattern, LETTERS)
    seed = next(
        i for i in range(9) if len(redraft.generate(model, "ab", max_new_tokens=12, seed=i, **options)[0].new) > 5
    )
    stop = redraft.generate(model, "ab", max_new_tokens=12, seed=seed, **options)[0].new[3:6]
    last = "ab"
    for draft in redraft.generate(model, "ab", max_new_tokens=12, seed=seed, stop=stop, stream=True, **options):
        assert draft.committed.startswith(last)
        last = draft.committed
    assert draft.written is not None
    (alone,) = redraft.generate(model, "ab", max_new_tokens=12, seed=seed, stop=stop, **options)
    assert last == draft.written.text == alone.text
    assert stop not in last


def test_special_tokens_are_stop_strings() -> None:
    """No text shows them, and with what follows they can make a stop string too."""
    hub = chat()
    stop = StopStrings(("<|eot|>",), hub)
    turn, eot = hub.id_of("<|turn|>"), hub.id_of("<|eot|>")
    assert turn is not None
    assert eot is not None
    ids = [turn, *hub.encode("hi"), eot, *hub.encode("there")]
    assert stop.token_count(ids) == 4
    assert stop.text_before(ids) == "hi"
    assert StopStrings(("<|eot|>th",), hub).token_count(ids) == 6
    assert StopStrings(("i<|eot|>",), hub).text_before(ids) == "h"
    assert StopStrings(("x",), hub).text_before(ids) == "hithere"
    model = model_of(Causal(), hub)
    with torch.no_grad():
        model.network.output.weight[eot] = model.network.output.weight[eot] * 8  # type: ignore[union-attr,operator,index]
    record = redraft.generate(model, "ab", max_new_tokens=12, n=8, stop="<|eot|>")
    assert {"stop", "length"} >= {text.stop for text in record}
    assert any(text.stop == "stop" for text in record)
    assert all(eot not in text.tokens for text in record)


def test_a_letter_of_several_tokens() -> None:
    stop = StopStrings(("é",), ByteTokenizer(("eos", "mask")))
    ids = list("aé".encode())
    assert stop.token_count(ids) == 3
    assert stop.token_count(ids[:2]) is None
    assert stop.text_before([*ids, 98]) == "a"
    assert StopStrings(("\n\n",), ByteTokenizer()).safe_prefix("one\n") == "one"
    assert StopStrings(("\n\n",), ByteTokenizer()).safe_prefix("one\n\ntwo") == "one"


@pytest.mark.parametrize(
    "process", [Insertion(WORDS.vocab), Interpolating(WORDS.vocab)], ids=["insertion", "uniform noise"]
)
def test_other_noise_is_cut_in_the_end(process: TokenProcess) -> None:
    model = model_of(process=process)
    for seed in range(4):
        free = redraft.generate(model, "a", max_new_tokens=8, steps=8, seed=seed)[0]
        if len(words := free.new.split()) > 1:
            text = redraft.generate(model, "a", max_new_tokens=8, steps=8, seed=seed, stop=words[1])[0]
            assert text.new == free.new[: free.new.find(words[1])]
            return
    pytest.fail("no text has two words")


@pytest.mark.parametrize("stop", ["", [""], 5, ["a", 3], {"a": 1}])
def test_wrong_stop_strings(stop: Any) -> None:
    with pytest.raises(ArgumentError, match=r"stop=.*give one text or a list of them, none of them empty"):
        redraft.generate(model_of(), "a", max_new_tokens=2, stop=stop)


def test_a_rule_ends_its_text_itself() -> None:
    with pytest.raises(ArgumentError, match="stop=… could end a text before it satisfies pattern="):
        redraft.generate(model_of(), "a", max_new_tokens=2, stop=".", pattern="[a-z ]+")


def test_names_of_others() -> None:
    model = model_of(Causal())
    ours = redraft.generate(model, "a", max_new_tokens=6, stop=["cat", "mat"])
    theirs = redraft.generate(model, "a", max_tokens=6, stop_strings=["cat", "mat"])
    assert json.dumps(ours[0].to_json()) == json.dumps(theirs[0].to_json())
