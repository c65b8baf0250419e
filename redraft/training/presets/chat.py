"""A tiny preset for chat: fine-tuning on questions and answers, as in LLaDA."""

from __future__ import annotations

from dataclasses import replace

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from redraft.core.text.tokenizers import HubTokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.picks.order import Confidence
from redraft.decoding.samplers.unmask import Unmask
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.data.corpora.story_tasks import StoryAttributes
from redraft.training.data.pair_framing import ChatRows
from redraft.training.presets.tiny import _ATTRIBUTES_LENGTH, STORY_LENGTH, mdlm_tiny
from redraft.training.runs import variations
from redraft.training.runs.run import Run

_SPECIALS = ("<|startoftext|>", "<|endoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|mask|>")
_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}"
)
_TEMPLATE_TOKENS = 8  # tokens the template adds to a question: start token, two headers of three, end of turn


def llada_chat_tiny() -> Run:
    """LLaDA's fine-tuning at tiny size: the attributes of a story are the question, the story is the answer.

    Only the answer is noised. End tokens are learned up to the end of the row, and one row in a hundred is cut to a
    random length. Sampling goes in blocks of 17 tokens, most confident first, and stops at the end token.
    """
    framing = ChatRows(_TEMPLATE_TOKENS + _ATTRIBUTES_LENGTH + STORY_LENGTH)
    run = variations.with_text(mdlm_tiny(), story_chat_tokenizer(), StoryAttributes(), framing)
    return replace(run, sampler=Blocks(Unmask(17, Confidence()), decode_block=17, stop=True))


def story_chat_tokenizer() -> HubTokenizer:
    """Build a tokenizer for the words of the stories, with special tokens and a chat template like LLaDA's."""
    words = ["[UNK]", *dict.fromkeys(["user", "assistant", "system", *STORY_LANGUAGE.topics, *STORY_LANGUAGE.words()])]
    backend = tokenizers.Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True)
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    backend.add_special_tokens([AddedToken(token, special=True) for token in _SPECIALS])
    start, end = _SPECIALS[:2]
    return HubTokenizer(backend.to_str(), bos=start, eos=end, mask=_SPECIALS[-1], template=_TEMPLATE)
