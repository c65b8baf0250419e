"""Speculative decoding for a causal model: builds the requested drafter and rejects settings that conflict with it."""

from __future__ import annotations

from pathlib import Path

import torch

from redraft.core.processes.masked import Masked
from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.speculation.acceptance import ACCEPT_RULES
from redraft.decoding.speculation.drafters import DiffusionDraft, Drafter, OwnDrafter
from redraft.decoding.speculation.lookup import PromptLookup, TextLookup
from redraft.decoding.speculation.speculative import SpeculativeSampler
from redraft.models.cpu_weights import weight_format, with_weight_format
from redraft.models.parts.drafter import DraftNetwork
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import GenerationSettings
from redraft.tasks.engine.model import TextModel, open_model
from redraft.training.data.sources import Jsonl, TextFiles

_CONFLICTING = {
    "sampler": "own",
    "steps": None,
    "threshold": None,
    "decode_block": None,
    "cache": "own",
    "guidance": 1.0,
    "repetition_penalty": None,
    "frequency_penalty": None,
    "presence_penalty": None,
}  # settings that cannot be combined with a draft, and their defaults


def speculative_sampler(model: TextModel, settings: GenerationSettings) -> SpeculativeSampler:
    """A speculative sampler for a causal model, with the requested drafter."""
    if model.lm.block != 1:
        raise ArgumentError(
            "draft", f"draft=…: {model.display_name} is not a causal model; it already writes several tokens at a time"
        )
    for name, value in _CONFLICTING.items():
        if getattr(settings, name) != value:
            raise ArgumentError(name, f"{name}=… cannot be combined with draft=…; leave one of them out")
    if settings.ruled:
        raise ArgumentError("draft", "draft=…: it cannot be combined with rules about the text; leave one of them out")
    rule, draft = ACCEPT_RULES[settings.accept], _drafter(model, settings)
    if rule.needs_log_q and not draft.ordered:
        raise ArgumentError(
            "accept",
            f"accept={settings.accept!r}: this rule needs probabilities, and lookup drafts have none; use matched",
        )
    return SpeculativeSampler(draft, rule, settings.draft_length, draft.costs(), stop=model.sampler.stops_at_end_token)


def can_draft(settings: GenerationSettings) -> bool:
    """Whether nothing in the settings conflicts with a draft."""
    free = all(getattr(settings, name) == value for name, value in _CONFLICTING.items())
    return free and settings.draft is None and not settings.ruled and not settings.alternatives


def _drafter(model: TextModel, settings: GenerationSettings) -> Drafter:
    if settings.draft == "lookup" and not Path("lookup").is_dir():
        return PromptLookup()
    if settings.draft == "self" and not Path("self").is_dir():
        if "drafter" not in model.lm.parts:
            raise ArgumentError(
                "draft",
                f"draft='self': {model.display_name} has no drafter of its own; train one: "
                f"redraft adapt {model.display_name} --draft self --data … --out …",
            )
        return OwnDrafter(model.lm.part(DraftNetwork).state(model.lm))
    path = Path(settings.draft or "")
    if path.is_file() or path.suffix in (".txt", ".jsonl"):
        return _text_lookup(path, model.tokenizer)
    drafter = open_model(path, device=next(model.lm.parameters()).device)
    if "drafter" in drafter.lm.parts:
        _require_same_tokens(model, drafter, str(settings.draft))
        _require_same_base(model, drafter, str(settings.draft))
        form = weight_format(model.lm)
        lm = drafter.lm if form in (None, "onnx") else with_weight_format(drafter.lm, form)
        return OwnDrafter(lm.part(DraftNetwork).state(lm))
    process = drafter.lm.process
    if not process.fills_masks or drafter.lm.codec is not None or drafter.needs_source or drafter.classes:
        raise ArgumentError(
            "draft", f"draft={settings.draft}: a drafter must be a mask-filling model that needs no source or class"
        )
    masked = process.narrowed(Masked, "a drafter", "use a mask-filling model")
    _require_same_tokens(model, drafter, str(settings.draft))
    longest = drafter.full_row_length or drafter.lm.config.network.positions
    window = None if longest is None else max(1, longest - settings.draft_length)
    return DiffusionDraft(drafter.lm.eval(), masked, settings.draft_steps, drafter.full_row_length, window)


def _text_lookup(path: Path, tokenizer: Tokenizer) -> TextLookup:
    """A drafter that copies from the texts of a file."""
    return TextLookup(tuple(tuple(tokenizer.encode(text)) for text in _texts(path)))


def _texts(path: Path) -> list[str]:
    """The paragraphs of a .txt file, or the `text` or `target` field of each line of a .jsonl file."""
    if path.suffix not in (".txt", ".jsonl"):
        raise ArgumentError("draft", f"draft={path}: a file of texts must end in .txt or .jsonl")
    if not path.is_file():
        raise ArgumentError("draft", f"draft={path}: there is no such file; `python recipes/drafts.py own` writes one")
    name = str(path)
    readers = [TextFiles((name,))] if path.suffix == ".txt" else [Jsonl((name,)), Jsonl((name,), field="target")]
    readings = [list(reader.read(name)) for reader in readers]
    records = min(readings, key=lambda reading: sum(bool(record.problem) for record in reading))
    wrong = next((record for record in records if record.problem), None)
    if wrong is not None:
        raise ArgumentError("draft", f"draft={path}: {wrong.location} is {wrong.problem}; leave such lines out")
    if not records:
        raise ArgumentError("draft", f"draft={path}: the file holds no text; give one with texts that the model wrote")
    return [record.text for record in records]


def _require_same_base(model: TextModel, drafter: TextModel, name: str) -> None:
    """Raises unless the drafter was trained for this model, whose hidden states it reads."""
    target_weights, drafter_weights = (dict(m.lm.network.named_parameters()) for m in (model, drafter))
    shared = target_weights.keys() & drafter_weights.keys()
    same_depth = model.lm.config.network.layers == drafter.lm.config.network.layers
    if not same_depth or not shared or not all(torch.equal(target_weights[n], drafter_weights[n]) for n in shared):
        raise ArgumentError(
            "draft",
            f"draft={name}: this drafter reads the hidden states of the model it was trained for; train one for "
            f"{model.display_name}: redraft adapt {model.display_name} --draft beside --data … --out …",
        )


def _require_same_tokens(model: TextModel, drafter: TextModel, name: str) -> None:
    """Raises unless every id stands for the same token in both models, apart from the mask."""
    if model.tokenizer == drafter.tokenizer:
        return
    vocab, drafter_vocab = model.lm.config.vocab, drafter.lm.config.vocab
    smaller, larger = sorted((vocab.size, drafter_vocab.size))
    ids = [i for i in range(smaller) if i not in (vocab.mask, drafter_vocab.mask)]
    if larger - smaller > 1 or any(model.tokenizer.piece(i) != drafter.tokenizer.piece(i) for i in ids):
        raise ArgumentError(
            "draft",
            f"draft={name}: its tokenizer differs ({drafter_vocab.size:,} ids, the model has {vocab.size:,}); train or "
            "adapt a drafter with the model's tokenizer",
        )
