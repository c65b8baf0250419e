"""Causal decoding by onnxruntime: the same network but for rounding, rows as if alone, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import redraft
from redraft.core import Canvas, Context
from redraft.decoding import Ancestral, Blocks, PromptLookup, Sampler, SpeculativeSampler, Unmask, final_canvas
from redraft.models import Causal, DiffusionLM, Full, KeyValueCache, LoraConfig, Shift, TransformerConfig
from redraft.models.cpu_weights import weight_format, with_weight_format
from redraft.models.networks.attention import RopeScaling
from redraft.models.networks.executors.dense import Dense
from redraft.models.networks.executors.onnx import Onnx
from redraft.models.networks.executors.packed import Packed

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
Build = Callable[..., DiffusionLM]
IDS = torch.arange(40)[None] * 7 % 6
LLAMA = {"width": 64, "heads": 4, "kv_heads": 2, "hidden": 160, "layers": 2}
NETWORKS = {
    "llama": {},
    "qwen": {"qk_norm": True, "qkv_bias": True, "head_dim": 32, "rope_scaling": RopeScaling(2.0)},
    "gpt2": dict.fromkeys(("norm_bias", "qkv_bias", "out_bias", "mlp_bias", "tied"), True)
    | {"norm": "layer", "gated": False, "rotary": None, "positions": 64, "kv_heads": None},
    "adapter": {"lora": LoraConfig(rank=4, alpha=1.0)},
}


class Never(Dense):
    """An executor that must not run."""

    def trunk(self, *_: Any) -> Any:
        raise AssertionError("a pass was not run by onnxruntime")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def on_onnx(model: DiffusionLM, **changes: Any) -> DiffusionLM:
    """The model on onnxruntime, which runs every pass."""
    fast = with_weight_format(model.eval(), "onnx")
    assert isinstance(fast.network.executor, Onnx)
    return fast.on(replace(fast.network.executor, inner=Never(), **changes))


def read(model: DiffusionLM, ids: torch.Tensor, cuts: list[int]) -> tuple[torch.Tensor, KeyValueCache]:
    """The logits of all tokens, read in pieces that begin at these columns."""
    cache, said = None, []
    with torch.no_grad():
        for first, end in zip(cuts, [*cuts[1:], ids.shape[1]], strict=True):
            position = torch.arange(first, end)[None]
            cache = model.absorb(ids[:, first:end], Context(positions=position, cache=cache)).cache
            assert isinstance(cache, KeyValueCache)
            assert cache.outputs is not None
            said.append(model.network.logits(cache.outputs.states))
    assert cache is not None
    return torch.cat(said, 1), cache


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("kind", NETWORKS)
def test_it_is_the_same_network(build: Build, tiny: TransformerConfig, kind: str, start: bool) -> None:
    """Logits and keys are those of torch but for 8 bits, and not those of torch itself."""
    model = build(Causal(), replace(tiny, **{**LLAMA, **NETWORKS[kind]}), **({} if start else {"head": Shift()}))
    (own, kept), (fast, found) = read(model.eval(), IDS, [0, 17]), read(on_onnx(model), IDS, [0, 17])
    assert 0 < float((own - fast).abs().max()) < 0.1 * float(own.std())
    for (k, v), (near_k, near_v) in zip(kept.layers, found.layers, strict=True):
        torch.testing.assert_close(near_k, k, rtol=0.02, atol=0.1)
        torch.testing.assert_close(near_v, v, rtol=0.02, atol=0.1)


def test_rows_are_as_if_alone(build: Build, tiny: TransformerConfig) -> None:
    """Rows of different lengths, with their padding at the end; sampled, greedy, and whole rows without a cache."""
    model = on_onnx(build(Causal(), replace(tiny, **LLAMA), head=Shift()))
    given = torch.tensor([3, 9, 5])
    lengths = given + torch.tensor([13, 7, 9])
    column = torch.arange(16)
    pad = column >= lengths[:, None]
    z = IDS[:, :16].repeat(3, 1).add(torch.arange(3)[:, None]).remainder(6).masked_fill(pad, 0)
    canvas = Canvas(z, (column < given[:, None]) | pad, Context(pad=pad))
    keys = redraft.rng(3, 3)
    samplers: tuple[Sampler, ...] = (Blocks(Ancestral(1)), Blocks(Unmask(1)))
    for sampler in samplers:
        together = final_canvas(sampler(model, model.process, canvas, rng=keys)).z
        for i in range(3):
            row, end = torch.tensor([i]), int(lengths[i])
            alone = Canvas(z[i : i + 1, :end], canvas.fixed[i : i + 1, :end])
            written = final_canvas(sampler(model, model.process, alone, rng=keys.rows(row))).z
            assert written[0].tolist() == together[i, :end].tolist()
    masks, later = torch.full_like(z, 6), ~pad & (column > 0)
    said = model.predict(masks, torch.ones(3, 1), Context(clean=z, pad=pad)).at(later)
    each = [
        model.predict(masks[i : i + 1, :end], torch.ones(1, 1), Context(clean=z[i : i + 1, :end]))
        for i, end in enumerate(lengths.tolist())
    ]
    ones = [pred.at(column[None, :end] > 0) for pred, end in zip(each, lengths.tolist(), strict=True)]
    assert torch.equal(said, torch.cat(ones))


def test_padding_before_a_token_is_refused(build: Build, tiny: TransformerConfig) -> None:
    model, pad = on_onnx(build(Causal(), replace(tiny, **LLAMA), head=Shift())), torch.arange(40)[None] < 3
    with pytest.raises(ValueError, match="pad rows at their ends"):
        model.absorb(IDS, Context(pad=pad))


def test_where_rounding_depends_on_company_tokens_are_read_one_by_one(
    build: Build, tiny: TransformerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(Causal(), replace(tiny, **LLAMA), head=Shift())
    together = read(on_onnx(model), IDS, [0])[0]
    runs: list[int] = []
    monkeypatch.setattr(Onnx, "_is_batch_invariant", lambda *_: False)
    alone = on_onnx(model, each_run=lambda: runs.append(1))
    assert not alone.network.executor.together  # type: ignore[attr-defined]
    assert torch.equal(read(alone, IDS, [0])[0], together)
    assert len(runs) == 40


def test_the_trial_notices_rounding_by_company(build: Build, tiny: TransformerConfig) -> None:
    fast = on_onnx(build(Causal(), replace(tiny, **LLAMA), head=Shift()))

    class Rounding(Onnx):
        def _run(self, config: Any, h: torch.Tensor, *rest: Any) -> torch.Tensor:
            return super()._run(config, h, *rest) + 1e-6 * len(h)

    network, executor = fast.network, fast.network.executor
    assert isinstance(executor, Onnx)
    assert executor._is_batch_invariant(network)
    assert not Rounding(executor.layers, executor.output)._is_batch_invariant(network)


def test_graphs_are_written_once_for_the_same_weights(build: Build, tiny: TransformerConfig, cache: Path) -> None:
    network = replace(tiny, **LLAMA)
    for seed in (0, 0, 1):
        on_onnx(build(Causal(), network, head=Shift(), seed=seed))
    assert {file.name for file in next(cache.glob("onnx-*")).iterdir()} >= {
        *("layers.bin", "layers.onnx", "manifest.json", "output.onnx")
    }
    assert len(list(cache.glob("onnx-*"))) == 2


def test_refusals(build: Build, tiny: TransformerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="for causal models"):
        with_weight_format(build(Full(), replace(tiny, **LLAMA)), "onnx")
    with pytest.raises(ValueError, match="a head width of 16"):
        with_weight_format(build(Causal(), replace(tiny, **LLAMA, head_dim=24)), "onnx")
    monkeypatch.setattr("redraft.models.cpu_weights.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'redraft\[fast\]'"):
        with_weight_format(build(Causal(), replace(tiny, **LLAMA)), "onnx")


def test_a_server_runs_its_passes_in_turn(build: Build, tiny: TransformerConfig) -> None:
    """Several requests, of which one is drafted: the texts are those of each alone."""
    pytest.importorskip("greenlet")
    from redraft.apps.server.scheduler import BatchScheduler

    beats: list[int] = []
    model = on_onnx(build(Causal(), replace(tiny, **LLAMA), head=Shift()))
    scheduler = BatchScheduler(min_rows=16)
    shared = model.on(Packed(scheduler, model.network.executor.unpacked(lambda: beats.append(1))))
    canvas = Canvas(IDS[:, :24], torch.arange(24)[None] < 4)
    greedy = SpeculativeSampler(PromptLookup(), length=4, costs=None, temperature=0)
    asked: list[Sampler] = [Blocks(Ancestral(1)), Blocks(Unmask(1)), greedy]
    alone = [final_canvas(s(model, model.process, canvas, rng=redraft.rng(i))).z for i, s in enumerate(asked)]
    found: dict[int, torch.Tensor] = {}

    def work(i: int) -> Callable[[], None]:
        def run() -> None:
            found[i] = final_canvas(asked[i](shared, shared.process, canvas, rng=redraft.rng(i))).z

        return run

    scheduler.run([work(i) for i in range(3)])
    scheduler.close()
    assert torch.equal(torch.cat([found[i] for i in range(3)]), torch.cat(alone))
    assert torch.equal(alone[1], alone[2])
    assert len(beats) == scheduler.passes > 40


def test_the_format_has_a_name(build: Build, tiny: TransformerConfig) -> None:
    model = build(Causal(), replace(tiny, **LLAMA))
    assert (weight_format(model), weight_format(on_onnx(model))) == (None, "onnx")
