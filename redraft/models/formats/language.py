"""What the checkpoints of language models mean: LLaDA, plain causal ones, and those that began as causal ones."""

from __future__ import annotations

import re
from dataclasses import replace

from redraft.core.processes.masked import Masked
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats.checkpoint import Meaning, Original, Understood, continuing, pattern, rows, with_mask
from redraft.models.formats.layout import LayoutError, whole_number
from redraft.models.heads import Shift, Subs
from redraft.models.networks.attention import BlockCausal, Causal, Full, Pattern
from redraft.models.networks.config import TransformerConfig

_MASKS = {  # words that published models use for the mask, without saying so
    "diffusionfamily/diffullama": 811,
    "diffusionfamily/diffugpt-s": 10541,
    "diffusionfamily/diffugpt-m": 50257,
}


def _causal(original: Original, network: TransformerConfig) -> Understood:
    """GPT-2, Llama, Qwen: each token from those before it. Under other attention they fill masks, as DiffuLLaMA."""
    if original.attention in (None, "causal"):
        known = continuing(original, rows(network))
        network = replace(network, pattern=Causal())
        return Understood.of(DiffusionLMConfig(Masked(known.vocab), network, Shift(Subs())), known)
    return _filling(
        original, network, Full(), "its settings are those of a causal model; taken for one that fills masks"
    )


def _filling(
    original: Original,
    network: TransformerConfig,
    usual: Pattern,
    *assumed: str,
    shift: bool = True,
    last: bool = False,
) -> Understood:
    """A model that fills masks; of those that began as causal ones each state still predicts the next token."""
    chosen = usual if original.attention is None else pattern(original.attention)
    if isinstance(chosen, Causal) and shift:
        return _causal(original, network)
    if isinstance(chosen, Causal):
        raise LayoutError("attention=causal was asked for, but its states do not predict the next token")
    stated = original.settings.get("mask_token_id")
    if stated is None and original.mask is None and original.name in _MASKS:
        original, assumed = (
            replace(original, mask=_MASKS[original.name]),
            (*assumed, f"the mask is that of {original.name}"),
        )
    known = with_mask(original, rows(network), stated, last=last)
    model = DiffusionLMConfig(Masked(known.vocab), replace(network, pattern=chosen), Shift(Subs()) if shift else Subs())
    return Understood.of(model, known, *assumed)


def _llada(original: Original, network: TransformerConfig) -> Understood:
    whole_number(original.settings, "mask_token_id")
    _refuse_other(original, "full")
    return _filling(original, network, Full(), shift=False)


def _dream(original: Original, network: TransformerConfig) -> Understood:
    return _filling(original, network, Full())


def _diffugpt(original: Original, network: TransformerConfig) -> Understood:
    """The mask is one row more than GPT-2 has; where there is none, it is a word, which only the caller knows."""
    more = rows(network) - 1 not in (original.settings.get("eos_token_id"), original.settings.get("bos_token_id"))
    return _filling(original, network, Full(), last=more)


def _diffullama(original: Original, network: TransformerConfig) -> Understood:
    return _filling(original, network, Full())


def _a2d(original: Original, network: TransformerConfig) -> Understood:
    """dllm's models. Settings do not tell MDLM (full attention) from BD3-LM (blocks); their names do."""
    name = original.name.lower()
    size = original.settings.get("block_size")
    if original.attention is not None:
        return _filling(original, network, Full(), shift=False)
    if type(size) is int:
        return _filling(original, network, BlockCausal(size), shift=False)
    if "bd3lm" in name:
        said = "attention in blocks of 32, as dllm trains BD3-LM: its name says bd3lm"
        return _filling(original, network, BlockCausal(32), said, shift=False)
    said = "full attention (MDLM)" + (": its name says mdlm" if "mdlm" in name else "; attention=block:32 for BD3-LM")
    return _filling(original, network, Full(), said, shift=False)


def _open_dcoder(original: Original, network: TransformerConfig) -> Understood:
    """A Qwen2 by its settings but for the code that they name."""
    assumed = () if original.attention else ("full attention: it names code of its own, as Open-dCoder does",)
    return _filling(original, network, Full(), *assumed)


def _sdar(original: Original, network: TransformerConfig) -> Understood:
    """Blocks of four, unless its settings or its name say otherwise: SDAR-8B-Chat-b32."""
    size = original.settings.get("block_size")
    if type(size) is int:
        return _filling(original, network, BlockCausal(size), shift=False)
    named = re.search(r"-b(\d{1,4})(?:$|[^\w])", original.name)
    size = int(named[1]) if named else 4
    said = f"blocks of {size}, " + ("as its name says" if named else "as SDAR has where its settings do not name them")
    return _filling(original, network, BlockCausal(size), *(() if original.attention else (said,)), shift=False)


def _fast_dllm(original: Original, network: TransformerConfig) -> Understood:
    size = original.settings.get("bd_size")
    assumed = () if size or original.attention else ("blocks of 32: its settings do not name them",)
    return _filling(original, network, BlockCausal(size or 32), *assumed)


def _refuse_other(original: Original, known: str) -> None:
    if original.attention not in (None, known):
        raise LayoutError(f"attention={original.attention} was asked for, but it has attention={known}")


LANGUAGE: dict[str, Meaning] = {
    "LLaDA": _llada,
    "Dream": _dream,
    "DiffuGPT": _diffugpt,
    "DiffuLLaMA": _diffullama,
    "A2D": _a2d,
    "Open-dCoder": _open_dcoder,
    "SDAR": _sdar,
    "Fast-dLLM v2": _fast_dllm,
    "causal": _causal,
}
