"""Configs that older versions wrote, in the form of today.

Until 0.1.0 a config named the file of a class. Until the sizes of a network were derived, each network also stored
what follows from the rest of its model (`vocab`, `vectors`, `cross`), a causal pattern its start token, and a sampler
of blocks its end token. These are left out now, but must have been what follows: a config that contradicts itself is
refused, as it always was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from redraft.models.networks.attention import Causal
from redraft.models.networks.config import TransformerConfig

_JSON: TypeAlias = Any
Finish: TypeAlias = Callable[[Any], Any]  # what is built of the rest → what the older config meant, or a ValueError

CLASSES = {  # those that changed their room
    "guidance.Guided": "samplers",
    "data.StoriesData": "corpora",
    "pairs.StoryAttributes": "corpora",
    "pairs.StoryClasses": "corpora",
    "pairs.StorySummaries": "corpora",
}
ROOMS = {"foreign": "runs", "pairs": "data", "run": "runs"}
_DERIVED = ("vocab", "vectors", "cross")


def upgraded(name: str, data: dict[str, _JSON]) -> tuple[dict[str, _JSON], Finish]:
    """The fields of a class of ours as it has them today, and what is still to be done with the value built of them."""
    return _UPGRADES[name](data) if name in _UPGRADES else (data, _as_it_is)


def _as_it_is(made: Any) -> Any:
    return made


def _objective(data: dict[str, _JSON]) -> tuple[dict[str, _JSON], Finish]:
    return {("drop_condition" if key == "untold" else key): item for key, item in data.items()}, _as_it_is


def _model(data: dict[str, _JSON]) -> tuple[dict[str, _JSON], Finish]:
    old = {part: data[part] for part in ("network", "encoder") if _sized(data.get(part))}
    rest = {part: {n: v for n, v in said.items() if n not in _DERIVED} for part, said in old.items()}
    if "encoder" in rest:
        rest["encoder"].pop("tied", None)  # how it was said that an encoder has no output layer

    def finish(made: Any) -> Any:
        sizes = {part: _padded(getattr(made, part), made, said["vocab"]) for part, said in old.items()}
        made = replace(made, **sizes)
        for part, said in old.items():
            _require(part, {n: said.get(n) for n in _DERIVED}, _follows(made, part))
        return made

    return {**data, **rest}, finish


def _sized(network: _JSON) -> bool:
    return isinstance(network, dict) and "vocab" in network


def _padded(network: TransformerConfig, model: Any, stored: _JSON) -> TransformerConfig:
    """With rows for more ids than there are, if it had them; and without a start token that follows."""
    if network.pattern == Causal(model.vocab.start):
        network = replace(network, pattern=Causal())
    spare = isinstance(stored, int) and stored > model.vocab.size and (model.codec is None or network is model.encoder)
    return replace(network, ids=stored) if spare else network


def _follows(model: Any, part: str) -> dict[str, int | None]:
    """The sizes of a network, by their old names."""
    ports, least = (model.ports, model.network.ids) if part == "network" else (model.source_ports, model.encoder.ids)
    vocab = ports.writes if ports.vectors else max(ports.reads, least or 0)
    return {"vocab": vocab, "vectors": ports.reads if ports.vectors else None, "cross": ports.cross}


def _require(part: str, stored: dict[str, _JSON], follows: dict[str, int | None]) -> None:
    for name, needed in follows.items():
        if stored[name] != needed:
            raise ValueError(
                f"the {part} was stored with {name}={stored[name]}, but the rest of the model needs {needed}; the "
                "config contradicts itself: restore it"
            )


def _run(data: dict[str, _JSON]) -> tuple[dict[str, _JSON], Finish]:
    ends: set[int] = set()
    sampler = _ending(data.get("sampler"), ends)

    def finish(run: Any) -> Any:
        if wrong := ends - {run.model.vocab.eos}:
            raise ValueError(
                f"the sampler was stored with stop={min(wrong)}, but the end token is {run.model.vocab.eos}; the "
                "config contradicts itself: restore it"
            )
        return run

    return ({**data, "sampler": sampler} if "sampler" in data else data), finish


def _ending(sampler: _JSON, ends: set[int]) -> _JSON:
    """A sampler that says whether rows end, not at which token; those it named are collected."""
    if not isinstance(sampler, dict):
        return sampler
    found = {key: _ending(item, ends) for key, item in sampler.items()}
    if _is_one_of(found.get("class"), ("Blocks", "Strides")) and type(found.get("stop", False)) is not bool:
        ends.update([] if found["stop"] is None else [found["stop"]])
        found["stop"] = found["stop"] is not None
    return found


def _is_one_of(name: _JSON, classes: Iterable[str]) -> bool:
    return (
        isinstance(name, str) and name.startswith("redraft.decoding.samplers.") and name.rpartition(".")[2] in classes
    )


_UPGRADES: dict[str, Callable[[dict[str, _JSON]], tuple[dict[str, _JSON], Finish]]] = {
    "redraft.models.DiffusionLMConfig": _model,
    "redraft.training.Objective": _objective,
    "redraft.training.Run": _run,
}
