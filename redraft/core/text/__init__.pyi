from .bleu import bleu as bleu, minimum_risk as minimum_risk
from .chat_template import (
    ChatError as ChatError,
    Render as Render,
    TemplateProcess as TemplateProcess,
    prompt_ids as prompt_ids,
    prompt_text as prompt_text,
    question_ids as question_ids,
    rendered as rendered,
    spelt_ids as spelt_ids,
)
from .tokenizers import (
    Bytes as Bytes,
    Characters as Characters,
    Hub as Hub,
    Special as Special,
    Tokenizer as Tokenizer,
    Words as Words,
    shares as shares,
    spell as spell,
    split_words as split_words,
    train_bpe as train_bpe,
)
