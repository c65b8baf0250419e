"""Text: tokenizers and chat templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.core.text.chat_template import (
        ChatError,
        Render,
        TemplateProcess,
        prompt_ids,
        prompt_text,
        question_ids,
        rendered,
        spelt_ids,
    )
    from redraft.core.text.tokenizers import (
        Bytes,
        Characters,
        Hub,
        Special,
        Tokenizer,
        Words,
        shares,
        spell,
        split_words,
        train_bpe,
    )

__getattr__, __dir__, __all__ = attach(__name__)
