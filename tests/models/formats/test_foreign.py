"""Checkpoints of the originals load as they are, say what the originals say, and can be used like our own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import tokenizers
import torch
from conftest import GOLDEN
from safetensors.torch import load_file, save_file
from tokenizers import models
from torch import Tensor

from redraft.core import (
    Canvas,
    Context,
    Geometric,
    HybridNoise,
    Insertion,
    Interpolating,
    Linear,
    Masked,
    NoisySample,
    Process,
    UniformNoise,
    Vocab,
    rng,
    score_ratios,
)
from redraft.decoding import Ancestral, Blocks, final_canvas
from redraft.models import (
    BlockCausal,
    CheckpointError,
    ConditionOnKeep,
    ConditionOnSigma,
    ConditionOnTime,
    DiffusionLM,
    Head,
    Score,
    Shift,
    Softmax,
    Subs,
    TimeConditioning,
    UniformScoreHead,
    reference_gaps,
    reference_outputs,
)
from redraft.training import export, load

TOLD = ConditionOnSigma(Linear(eps=1e-3))
MEANINGS: dict[str, tuple[Process, Head, TimeConditioning]] = {
    "mdlm": (Masked(Vocab(41, mask=40)), Subs(), TOLD),
    "sedd": (Masked(Vocab(41, mask=40)), Score(), TOLD),
    "sedd_uniform": (
        Interpolating(Vocab(40), Geometric(1e-4, 20), UniformNoise()),
        UniformScoreHead(),
        ConditionOnSigma(Geometric(1e-4, 20)),
    ),
    "udlm": (Interpolating(Vocab(40), Linear(), UniformNoise()), Softmax(), TOLD),
    "gidd": (
        Interpolating(Vocab(40, mask=39), Linear(), HybridNoise(0.1)),
        Subs(carry_over=False),
        ConditionOnTime(1.0),
    ),
    "bd3lm": (Masked(Vocab(41, mask=40)), Subs(), ConditionOnTime(0.0)),
    "flexmdm_expectation": (Insertion(Vocab(40, mask=38, pad=39)), Subs(), ConditionOnKeep()),
    "flexmdm_distribution": (Insertion(Vocab(40, mask=38, pad=39)), Subs(), ConditionOnKeep()),
    "llada": (Masked(Vocab(40, mask=37)), Subs(), ConditionOnTime()),
    "dream": (Masked(Vocab(40, mask=38)), Shift(Subs()), ConditionOnTime()),
    "diffugpt": (Masked(Vocab(40, mask=39)), Shift(Subs()), ConditionOnTime()),
}


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every original in a directory of its own, as it was published: settings and weights."""
    parent = tmp_path_factory.mktemp("originals")
    for name in MEANINGS:
        (parent / name).mkdir()
        shutil.copy(GOLDEN / name / "config.json", parent / name)
        weights = load_file(GOLDEN / name / "model.safetensors")
        if (recovered := GOLDEN / name / "recovered.safetensors").exists():
            weights |= load_file(recovered)
        save_file(weights, parent / name / "model.safetensors")
    return parent


@cache
def io(name: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / name / "io.safetensors")


def same(actual: Tensor, expected: Tensor, atol: float = 2e-5, rtol: float = 1e-4) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol)


# --- what they say ---


@pytest.mark.parametrize(
    ("name", "tokens", "level", "expected"),
    [
        ("mdlm", "xt", "sigma", "logits"),
        ("sedd", "xt", "sigma", "log_score"),
        ("sedd_uniform", "xt", "sigma", "log_score"),
        ("udlm", "xt", "sigma", "logits"),
        ("gidd", "z_t", "t", "logits_hf"),
        ("bd3lm", "sample_mode_input", None, "sample_mode_logits"),
        ("llada", "xt", None, "logits"),
        ("dream", "xt", None, "logits"),
        ("diffugpt", "xt", None, "logits"),
    ],
)
def test_raw_numbers_are_those_of_the_original(
    folder: Path, name: str, tokens: str, level: str | None, expected: str
) -> None:
    model, given = load(folder / name), io(name)
    same(reference_outputs(model, given[tokens], None if level is None else given[level]), given[expected])


def test_a_network_that_sees_sigma_may_be_told_zero(folder: Path) -> None:
    given = io("mdlm")
    same(reference_outputs(load(folder / "mdlm"), given["xt"], torch.zeros(3, 1)), given["logits_sigma0"])


def test_udlm_knows_labels(folder: Path) -> None:
    model, given = load(folder / "udlm"), io("udlm")
    assert model.config.network.classes == 3
    same(reference_outputs(model, given["xt"], given["sigma"], given["cond"]), given["logits_cond"])
    none = reference_outputs(model, given["xt"], given["sigma"], torch.full((3,), 3))
    assert not torch.allclose(none, given["logits"], atol=1e-2), "the class of none is told too"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("flexmdm_expectation", "expected_gaps"), ("flexmdm_distribution", "length_posterior_logits")],
)
def test_flexmdm_infers_its_padding(folder: Path, name: str, expected: str) -> None:
    model, given = load(folder / name), io(name)
    length, place = given["xt_length"][:, None], torch.arange(17)
    assert length.flatten().tolist() == [3, 6, 7]
    real, gap = place[:16] < length, place <= length  # beyond, the original's queries see nothing at all
    same(reference_outputs(model, given["xt"], given["t"])[real], given["token_logits"][real])
    same(reference_gaps(model, given["xt"], given["t"])[gap], given[expected][gap])


@pytest.mark.parametrize(
    ("schedule", "rises"),
    [
        ({"type": "linear"}, lambda time: time),
        ({"type": "sin"}, lambda time: torch.sin(torch.pi / 2 * time)),
        ({"type": "cosine"}, lambda time: 1 - torch.cos(torch.pi / 2 * time)),
        ({"type": "polynomial", "exp": 2.5}, lambda time: time**2.5),
        ({"type": "geometric", "min": 5.0, "max": 0.02}, lambda time: torch.exp(-(5.0 ** (1 - time)) * 0.02**time)),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("told", [True, False])
def test_schedules_of_flexmdm(
    folder: Path, schedule: dict[str, object], rises: Callable[[Tensor], Tensor], told: bool, tmp_path: Path
) -> None:
    """Its time runs from empty to text; the network is told it, or how much is inserted by then."""
    settings = settings_of(folder / "flexmdm_expectation")
    interpolant = {**settings["interpolant"], "insert_schedule": schedule, "unmask_schedule": schedule}  # type: ignore[dict-item]
    settings |= {"interpolant": interpolant, "training": {"only_embed_insert": told}}
    model = load(put(tmp_path / "flex", settings, load_file(folder / "flexmdm_expectation" / "model.safetensors")))
    assert isinstance(model.process, Insertion)
    time = torch.linspace(0.05, 0.95, 10, dtype=torch.float64)[:, None].requires_grad_()
    with torch.enable_grad():
        share = rises(time)
        rate = torch.autograd.grad(share.sum(), time)[0] / (1 - share)
    for ours in (model.process.insert_schedule, model.process.unmask_schedule):
        same(ours.keep(1 - time), share.detach(), atol=1e-12)
        same(ours.rate(1 - time), rate.detach(), atol=1e-9)
        same(ours.inverse(share.detach()), 1 - time.detach(), atol=1e-9)
        assert (ours.start, ours.end) == (1, 0)
    same(model.config.time_conditioning(1 - time.detach(), model.process), (share if told else time).detach())


def test_gidd_has_no_numbers_for_the_rounded_vocabulary(folder: Path) -> None:
    """Training rounds the vocabulary up to 128; the export drops the rows that stand for nothing."""
    given = io("gidd")
    assert given["logits_rounded_vocab"].shape[-1] == 128
    found = reference_outputs(load(folder / "gidd"), given["z_t"], given["t"])
    same(found[:, :4], given["logits_rounded_vocab"][..., :40])


def test_raw_wants_what_the_network_is_told(folder: Path) -> None:
    given = io("mdlm")
    told, untold = load(folder / "mdlm"), load(folder / "bd3lm")
    with pytest.raises(ValueError, match=r"needs the noise level \(ConditionOnSigma\); give level, a number per row"):
        reference_outputs(told, given["xt"])
    with pytest.raises(ValueError, match="times must have shape"):
        reference_outputs(told, given["xt"], given["sigma"][:2])
    with pytest.raises(ValueError, match="no class labels"):
        reference_outputs(told, given["xt"], given["sigma"], torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="has no pad token"):
        reference_gaps(untold, given["xt"])


# --- what it means ---


@pytest.mark.parametrize("name", MEANINGS)
def test_process_head_and_level(folder: Path, name: str) -> None:
    model = load(folder / name)
    assert (model.process, model.config.head, model.config.time_conditioning) == MEANINGS[name]
    assert not model.training


@pytest.mark.parametrize(("name", "t"), [("mdlm", "t"), ("sedd", "t"), ("sedd_uniform", "t"), ("udlm", "t")])
def test_networks_are_told_the_sigma_of_the_original(folder: Path, name: str, t: str) -> None:
    model, given = load(folder / name), io(name)
    same(model.config.time_conditioning(given[t][:, None], model.process), given["sigma"][:, None], atol=1e-6)


def test_the_sigma_of_pure_noise_is_told_where_it_is_finite(folder: Path) -> None:
    for name, most in (("sedd_uniform", 20.0), ("sedd", 6.907755)):
        model = load(folder / name)
        assert float(model.config.time_conditioning(torch.ones(1, 1), model.process)) == pytest.approx(most, rel=1e-4)


def test_flexmdm_is_told_its_own_time(folder: Path) -> None:
    model, given = load(folder / "flexmdm_expectation"), io("flexmdm_expectation")
    t = 1 - given["t"][:, None]
    same(model.config.time_conditioning(t, model.process), given["t"][:, None])


def test_mdlm_prediction_and_bound(folder: Path) -> None:
    model, given = load(folder / "mdlm"), io("mdlm")
    t = given["t"][:, None]
    pred = model.predict(given["xt"], t)
    same(pred.x.clamp(min=-1e6), given["log_p_x0"].clamp(min=-1e6), atol=20)  # the original's −10⁶ ± logits is −∞
    same(model.process.nelbo(pred, NoisySample(given["xt"], t, given["x0"])), given["nll_subs_timecond"])
    assert not bool(model.process.prior_kl(given["x0"]).any()), "the ε of the original would make it infinite"


def test_udlm_prediction_and_bound(folder: Path) -> None:
    """The original noises by 1 − 0.999 t, which is also what its network is told, but its bound is that of 1 − t."""
    model, given = load(folder / "udlm"), io("udlm")
    t = given["t"][:, None]
    pred, noised = model.predict(given["xt"], t), NoisySample(given["xt"], t, given["x0"])
    same(pred.x, given["log_p_x0"])
    same(model.process.nelbo(pred, noised), given["diffusion_loss"])
    as_noised = Interpolating(Vocab(40), Linear(eps=1e-3)).nelbo(pred, noised).mean()
    assert as_noised - given["diffusion_loss"].mean() == pytest.approx(1.3e-3, abs=1e-4)


def test_gidd_bound(folder: Path) -> None:
    model, given = load(folder / "gidd"), io("gidd")
    t = given["t"][:, None]
    nats = model.process.nelbo(model.predict(given["z_t"], t), NoisySample(given["z_t"], t, given["x0"]))
    same(nats, given["elbo_per_token_pu0.1"])


@pytest.mark.parametrize("name", ["flexmdm_expectation", "flexmdm_distribution"])
def test_flexmdm_prediction_of_gaps(folder: Path, name: str) -> None:
    model, given = load(folder / name), io(name)
    length, t = given["xt_length"][:, None], 1 - given["t"][:, None]
    pred = model.predict(given["xt"], t, Context(pad=torch.arange(16) >= length))
    gap = torch.arange(17) <= length
    same(pred.gaps.mean[gap], given["expected_gaps"][gap])


def test_bd3lm_prediction_and_bound(folder: Path) -> None:
    model, given = load(folder / "bd3lm"), io("bd3lm")
    assert model.config.network.pattern == BlockCausal(4)
    pred = model.predict(given["xt"], given["t"], Context(clean=given["x0"]))
    same(model.process.nelbo(pred, NoisySample(given["xt"], given["t"], given["x0"])), given["nll"])


def test_sedd_bound_is_its_score_entropy(folder: Path) -> None:
    model, given = load(folder / "sedd"), io("sedd")
    t = given["t"][:, None]
    nats = model.process.nelbo(model.predict(given["xt"], t), NoisySample(given["xt"], t, given["x0"]))
    same(nats, given["dsigma"][:, None] * given["score_entropy"])
    same(nats.sum(-1), given["loss_per_sequence"])


def test_ratios_of_a_prediction_give_it_back() -> None:
    process = Interpolating(Vocab(5), Geometric(1e-4, 20))
    log_x = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).log_softmax(-1)
    z, t = torch.tensor([[0, 1, 4, 4]]), torch.tensor([[0.1, 0.5, 0.8, 0.9]])
    log_s = score_ratios(log_x, z, process.mix(t).keep, process.limiting_distribution)
    found = UniformScoreHead().estimate(log_s[0].float(), z[0], t[0], process)
    same(found, log_x[0].float(), atol=1e-3)
    with pytest.raises(ValueError, match="is for interpolating noise, not Masked"):
        UniformScoreHead().estimate(log_s[0], z[0], t[0], Masked(Vocab(5, mask=4)))


def test_ratios_of_no_prediction_give_the_nearest(folder: Path) -> None:
    model, given = load(folder / "sedd_uniform"), io("sedd_uniform")
    x = model.predict(given["xt"], given["t"][:, None]).x.exp()
    assert bool((x == 0).any()), "random weights give scores that no x̂ has"
    same(x.sum(-1), torch.ones(3, 16))


# --- used like our own ---


def canvas_of(model: DiffusionLM) -> Canvas:
    z, fixed = torch.zeros(2, 8, dtype=torch.int64), torch.zeros(2, 8, dtype=torch.bool)
    fixed[:, 0] = True
    if not isinstance(model.process, Insertion):
        return Canvas(z, fixed)
    pad = torch.arange(8).expand(2, 8) > 0
    z = z.masked_fill(pad, model.config.vocab.pad or 0)
    return Canvas(z, fixed, Context(pad=pad), open=torch.arange(9).expand(2, 9) == 1)


def written(model: DiffusionLM) -> Canvas:
    sampler = Ancestral(8) if model.block is None else Blocks(Ancestral(8))
    return final_canvas(sampler(model, model.process, canvas_of(model), rng=rng(0, 2)))


@pytest.mark.parametrize("name", MEANINGS)
def test_it_writes(folder: Path, name: str) -> None:
    model = load(folder / name)
    z = written(model).z
    assert z.shape == (2, 8)
    assert z[:, 0].tolist() == [0, 0]
    assert model.config.vocab.mask not in z.flatten().tolist()
    assert len(set(z.flatten().tolist())) > 2


@pytest.mark.parametrize("name", MEANINGS)
def test_it_can_be_given_away_as_one_of_ours(folder: Path, name: str, tmp_path: Path) -> None:
    model = load(folder / name)
    again = load(export(tmp_path / "ours", model))
    assert again.config == model.config
    assert again.tokenizer is None
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor)
    assert torch.equal(written(again).z, written(model).z)


# --- how they are recognized ---


def put(path: Path, settings: dict[str, object], weights: dict[str, Tensor] | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(settings))
    if weights is not None:
        save_file(weights, path / "model.safetensors")
    return path


def settings_of(path: Path) -> dict[str, object]:
    settings: dict[str, object] = json.loads((path / "config.json").read_text())
    return settings


@pytest.mark.parametrize("name", ["bd3lm", "udlm"])
def test_flat_settings_of_the_hub_say_the_same(folder: Path, name: str, tmp_path: Path) -> None:
    flat = json.loads((GOLDEN / name / "expected.json").read_text())["hf_config"]
    exported = put(tmp_path / name, flat | {"model_type": name}, load_file(folder / name / "model.safetensors"))
    assert load(exported).config == load(folder / name).config


def test_flat_settings_of_mdlm_say_the_same(folder: Path, tmp_path: Path) -> None:
    flat: dict[str, object] = {"model_type": "mdlm", "hidden_dim": 48, "cond_dim": 129, "n_blocks": 2, "n_heads": 4}
    weights = load_file(folder / "mdlm" / "model.safetensors")
    assert load(put(tmp_path / "a", flat, weights)).config.time_conditioning == ConditionOnTime(0.0), (
        "time conditioning is off by default"
    )
    told = put(tmp_path / "b", flat | {"time_conditioning": True}, weights)
    assert load(told).config == load(folder / "mdlm").config


def test_names_of_compiled_models_are_understood(folder: Path, tmp_path: Path) -> None:
    name, given = "flexmdm_expectation", io("flexmdm_expectation")
    weights = load_file(folder / name / "model.safetensors")
    compiled = {key.replace("model.", "model._orig_mod.", 1): tensor for key, tensor in weights.items()}
    model = load(put(tmp_path / name, settings_of(folder / name), compiled))
    assert torch.equal(
        reference_outputs(model, given["xt"], given["t"]),
        reference_outputs(load(folder / name), given["xt"], given["t"]),
    )


def test_weights_may_come_in_shards(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / "llada" / "model.safetensors")
    names = sorted(weights)
    path, shards = put(tmp_path / "llada", settings_of(folder / "llada")), {"a": names[::2], "b": names[1::2]}
    for shard, keys in shards.items():
        save_file({key: weights[key] for key in keys}, path / f"{shard}.safetensors")
    index = {key: f"{shard}.safetensors" for shard, keys in shards.items() for key in keys}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert torch.equal(
        reference_outputs(load(path), io("llada")["xt"]), reference_outputs(load(folder / "llada"), io("llada")["xt"])
    )
    (path / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks b\.safetensors"):
        load(path)


def with_tokenizer(path: Path, words: int, mask: str | None = None) -> None:
    """A tokenizer of so many words, w0 w1 …"""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if mask is not None:
        tokenizer.add_special_tokens([mask])
    tokenizer.save(str(path / "tokenizer.json"))


@pytest.mark.parametrize(
    ("name", "words"), [("mdlm", 40), ("sedd", 40), ("gidd", 39), ("udlm", 40), ("flexmdm_expectation", 38)]
)
def test_a_tokenizer_beside_the_weights_is_used(folder: Path, name: str, words: int, tmp_path: Path) -> None:
    path = Path(shutil.copytree(folder / name, tmp_path / name))
    with_tokenizer(path, words, "[MASK]" if name == "gidd" else None)
    model = load(path)
    assert model.config == load(folder / name).config
    canvas = model.canvas("w3 w1", new=2)
    assert canvas.z[0, :2].tolist() == [3, 1]
    assert model.text(canvas)[0].startswith("w3 w1")
    again = load(export(tmp_path / "ours", model))
    assert again.tokenizer == model.tokenizer


def test_a_tokenizer_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(folder / "llada", tmp_path / "llada"))
    with_tokenizer(path, 39)
    with pytest.raises(CheckpointError, match="has 40 ids and the mask 39, where the weights have 40 and 37"):
        load(path)


# --- what does not fit ---


def test_unknown_formats_are_named(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / "diffugpt" / "model.safetensors")
    known = r"; the known formats are MDLM, SEDD, UDLM, GIDD, FlexMDM, BD3-LM, LLaDA, Dream, DiffuLLaMA, A2D"
    with pytest.raises(CheckpointError, match=r"not in a known format: its config\.json has model_type='bert'" + known):
        load(put(tmp_path / "bert", {"model_type": "bert", "vocab_size": 40}, weights))
    with pytest.raises(CheckpointError, match=r"not in a known format: its config\.json has the keys a, b"):
        load(put(tmp_path / "keys", {"b": 1, "a": 2}, weights))
    with pytest.raises(CheckpointError, match="parameterization='ar'"):
        load(put(tmp_path / "ar", {"backbone": "dit", "parameterization": "ar"}, weights))


def test_names_of_tensors_tell_diffugpt_from_gpt2(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / "diffugpt" / "model.safetensors")
    plain = {key.replace("denoise_model.", "transformer."): tensor for key, tensor in weights.items()}
    assert load(put(tmp_path / "gpt2", settings_of(folder / "diffugpt"), plain)).config.is_plain_causal


@pytest.mark.parametrize(
    ("name", "gone", "message"),
    [
        ("sedd", "blocks.1.norm1.weight", "taken for SEDD, but the weights .* missing blocks.1.norm1.weight"),
        ("udlm", "backbone.sigma_map.mlp.0.weight", "taken for UDLM, but the weights lack sigma_map.mlp.0.weight"),
        ("flexmdm_expectation", "model.len_pred.proj2.bias", "taken for FlexMDM, .* missing len_pred.proj2.bias"),
        ("gidd", "output_layer.linear.bias", "taken for GIDD, .* missing output_layer.linear.bias"),
    ],
)
def test_missing_tensors_are_named(folder: Path, name: str, gone: str, message: str, tmp_path: Path) -> None:
    weights = load_file(folder / name / "model.safetensors")
    del weights[gone]
    with pytest.raises(CheckpointError, match=message):
        load(put(tmp_path / name, settings_of(folder / name), weights))


def test_gaps_without_their_settings_are_unexpected(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / "flexmdm_distribution" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"taken for MDLM, .* unexpected len_pred\.adaLN_modulation\.bias"):
        load(put(tmp_path / "x", {"model_type": "mdlm", "n_blocks": 2, "n_heads": 4}, weights))


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("mdlm", {"noise": {"type": "sine"}}, r"its noise \{'type': 'sine'\} is not one of the schedules"),
        ("bd3lm", {"noise": {"type": "log"}}, "its noise .* is not one of the schedules"),
        ("sedd", {"graph": {"type": "uniform"}}, "scale_by_sigma=True is not supported"),
        ("udlm", {"time_conditioning": False}, "only time_conditioning=True can be loaded"),
        ("llada", {"mask_token_id": None}, "the settings lack mask_token_id"),
        ("gidd", {"vocab_size": 128}, "taken for GIDD, but its weights have rows for 40 ids, fewer than the 128"),
    ],
)
def test_settings_that_cannot_be_followed_are_named(
    folder: Path, name: str, changed: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = put(tmp_path / name, settings_of(folder / name) | changed, load_file(folder / name / "model.safetensors"))
    with pytest.raises(CheckpointError, match=message):
        load(path)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.pt", "best.ckpt", "model.pth"])
def test_pickled_weights_are_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(b"\x80\x04N.")
    advice = r"only safetensors are read. Convert them once: redraft import .* --out DIR, .*weights_only=True\)"
    for path in (tmp_path, tmp_path / file, put(tmp_path, {"model_type": "mdlm"})):
        with pytest.raises(CheckpointError, match=rf"holds pickled weights \({file}\); {advice}"):
            load(path)


def test_damaged_files_are_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match=r"lacks model\.safetensors"):
        load(put(tmp_path, settings_of(folder / "mdlm")))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="are damaged"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match="holds a list; it must hold a JSON object"):
        load(tmp_path)
