"""Foreign weights give foreign numbers: logits and losses of the original implementations (see tests/golden)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from conftest import GOLDEN
from safetensors.torch import load_file
from torch import Tensor

from redraft.core import (
    Condition,
    Context,
    Cosine,
    CosineSquared,
    Exponential,
    Geometric,
    Interpolating,
    Linear,
    Masked,
    MaskNoise,
    NoiseTimes,
    NoisySample,
    Polynomial,
    Schedule,
    Vocab,
    clip_and_normalize,
    score_ratios,
    tweedie_probs,
)
from redraft.models import (
    BlockCausal,
    Causal,
    ConditionOnSigma,
    ConditionOnTime,
    DiffusionLM,
    DiffusionLMConfig,
    Head,
    NetworkIO,
    Score,
    Shift,
    Softmax,
    Subs,
    TimeConditioning,
    Transformer,
    TransformerConfig,
    reference_outputs,
)
from redraft.models.formats.dit import _dit_layout
from redraft.models.formats.gpt2 import _gpt2_layout
from redraft.models.formats.llada import _llada_layout
from redraft.models.formats.llama import _llama_layout, _qwen2_layout
from redraft.models.formats.storage.tensors import LayoutError
from redraft.models.networks.attention import AttentionMask
from redraft.training import Bound, TokenCrossEntropy

Loaded = tuple[TransformerConfig, dict[str, Tensor]]
LEARNED_MASK = Subs(zero_mask=False)  # LLaDA and its kin leave the mask in the softmax


@dataclass(frozen=True)
class Golden:
    weights: dict[str, Tensor]
    config: dict[str, Any]
    io: dict[str, Tensor]
    expected: dict[str, Any]

    def __getitem__(self, name: str) -> Tensor:
        return self.io[name]

    def time(self, name: str = "t") -> Tensor:
        """(B, 1)"""
        return self.io[name][:, None]

    def loss(self, name: str) -> Tensor:
        return torch.tensor(self.expected["scalars"][name])


@cache
def load(name: str) -> Golden:
    path = GOLDEN / name
    config, expected = (json.loads((path / f"{stem}.json").read_text()) for stem in ("config", "expected"))
    weights = load_file(path / "model.safetensors")
    if (recovered := path / "recovered.safetensors").exists():
        weights |= load_file(recovered)
    return Golden(weights, config, load_file(path / "io.safetensors"), expected)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def network(loaded: Loaded, start: int = 0) -> Transformer:
    config, state = loaded
    assert config.padded_vocab is not None
    made = Transformer(config, NetworkIO(config.padded_vocab, config.padded_vocab, start=start))
    made.load_state_dict(state)
    return made.eval()


def model(
    loaded: Loaded, mask: int, head: Head, schedule: Schedule = Linear(), level: TimeConditioning = ConditionOnTime(0.0)
) -> DiffusionLM:
    config, state = loaded
    assert config.padded_vocab is not None
    made = DiffusionLM(DiffusionLMConfig(Masked(Vocab(config.padded_vocab, mask=mask), schedule), config, head, level))
    made.network.load_state_dict(state)
    return made.eval()


def logits(net: Transformer, tokens: Tensor, level: Tensor | None = None, context: Context = Context()) -> Tensor:
    return net.logits(net(tokens, level, context))


def same(actual: Tensor, expected: Tensor, atol: float = 2e-5, rtol: float = 1e-4) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol)


def impossible_as_inf(log_p: Tensor) -> Tensor:
    """The originals write −10⁶ for the logarithm of zero."""
    return log_p.masked_fill(log_p < -1e5, -torch.inf)


# MDLM


@pytest.mark.parametrize(("name", "sees"), [("logits", 1.0), ("logits_sigma0", 0.0)])
def test_mdlm_logits(name: str, sees: float) -> None:
    golden = load("mdlm")
    net = network(_dit_layout(golden.weights, golden.config))
    same(logits(net, golden["xt"], sees * golden.time("sigma")), golden[name])


@pytest.mark.parametrize(
    ("level", "log_p", "nll", "loss"),
    [
        (ConditionOnTime(0.0), "log_p_x0_sigma0", "nll_subs", "loss_subs_continuous"),
        (ConditionOnSigma(), "log_p_x0", "nll_subs_timecond", "loss_subs_continuous_timecond"),
    ],
)
def test_mdlm_prediction_and_bound(level: TimeConditioning, log_p: str, nll: str, loss: str) -> None:
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Subs(), Linear(eps=1e-3), level)
    pred = lm.predict(golden["xt"], golden.time())
    nats = lm.process.nelbo(pred, NoisySample(golden["xt"], golden.time(), golden["x0"]))
    same(pred.x, impossible_as_inf(golden[log_p]))
    same(nats, golden[nll])
    same(nats.mean(), golden.loss(loss))


def test_mdlm_bound_without_padding() -> None:
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Subs(), Linear(eps=1e-3), ConditionOnSigma())
    pred = lm.predict(golden["xt"], golden.time())  # the original attends to padding and only drops it from the loss
    padded = NoisySample(golden["xt"], golden.time(), golden["x0"], pad=golden["attention_mask_2"] == 0)
    nats = lm.process.nelbo(pred, padded)
    same(nats.sum() / golden["attention_mask_2"].sum(), golden.loss("loss_subs_continuous_timecond_mask2"))


def test_mdlm_bound_of_a_thousand_steps() -> None:
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Subs())
    t = golden.time("t_T1000").double()
    pred, noised, times = (
        lm.predict(golden["xt"], t),
        NoisySample(golden["xt"], t, golden["x0"]),
        NoiseTimes(t, t - 1 / 1000, 1000.0),
    )
    nats = Bound(steps=1000)(lm.process, pred, noised, times)
    same(nats, golden["nll_subs_T1000"])
    same(nats.mean(), golden.loss("loss_subs_T1000"))


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("loglinear", Linear(eps=1e-3)),
        ("cosine", Cosine(eps=1e-3)),
        ("cosinesqr", CosineSquared(eps=1e-3)),
        ("linear", Exponential(1e-3, 10.0)),
        ("geometric", Geometric(1e-3, 1.0)),
    ],
)
def test_mdlm_schedules(name: str, schedule: Schedule) -> None:
    golden = load("mdlm")
    t = golden["sched_t"].double()
    keep = schedule.keep(t)
    same(-keep.log(), golden[f"sched_{name}_total"].double(), atol=1e-7)
    same(-schedule.slope(t) / keep, golden[f"sched_{name}_rate"].double(), atol=1e-7)


def test_mdlm_is_told_sigma() -> None:
    golden = load("mdlm")
    process = Masked(Vocab(41, mask=40), Linear(eps=1e-3))
    same(ConditionOnSigma()(golden.time(), process), golden.time("sigma"))


def test_mdlm_importance_weight_is_a_constant() -> None:
    """Times drawn so that log(1 − α) is uniform leave −log(1 − α₀) to multiply the cross-entropy by."""
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Subs())
    noised = NoisySample(golden["xt"], golden.time(), golden["x0"])
    nll = TokenCrossEntropy(power=0.0)(
        lm.process, lm.predict(golden["xt"], golden.time()), noised, NoiseTimes(golden.time())
    )
    first = Exponential(low=1e-3)  # σ₀ = 10⁻³
    same(nll.mean() * -math.log(1 - first.start), golden.loss("loss_subs_importance"))


@pytest.mark.parametrize("name", ["ddpm_q_xs_unnormalised", "ddpm_cache_q_xs_unnormalised"])
def test_mdlm_reverse_step(name: str) -> None:
    """The second forgets the ε of the schedule (its chances are t and s): normalized, both are the same step."""
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Subs())
    t, hidden = golden.time(), golden["xt"] == 40
    share = Linear().share(t - golden.expected["dt_reverse_step"], t)
    step = share[..., None] * lm.predict(golden["xt"], t).x.exp()
    step[..., 40] = 1 - share
    same(step[hidden].float(), (golden[name] / golden[name].sum(-1, keepdim=True))[hidden])


def test_mdlm_score_analytic_step_and_denoiser() -> None:
    """The score of MDLM's prediction, and SEDD's samplers on it."""
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Subs())
    xt, limit, schedule = golden["xt"], Masked(Vocab(41, mask=40)).limiting_distribution, Linear(eps=1e-3)
    s, t = (golden.time().double() - gap for gap in (golden.expected["dt_reverse_step"], 0.0))
    keep_s, keep_t = schedule.keep(s), schedule.keep(t)
    log_score = score_ratios(lm.predict(xt, t).x.double(), xt, keep_t, limit)
    same(log_score.exp().float(), golden["score_subs"])
    same(
        clip_and_normalize(tweedie_probs(log_score, xt, keep_s.log() - keep_t.log(), limit)).float(),
        golden["analytic_probs"],
    )
    clean = tweedie_probs(log_score, xt, -keep_t.log(), limit)
    clean[..., 40] = 0  # the original drops the mask
    same(clean.float(), golden["denoiser_probs"])


def test_mdlm_weights_read_as_scores() -> None:
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Score(), Linear(eps=1e-3), ConditionOnSigma())
    noised = NoisySample(golden["xt"], golden.time(), golden["x0"])
    nats = lm.process.nelbo(lm.predict(golden["xt"], golden.time()), noised)
    same(reference_outputs(lm, golden["xt"], golden["sigma"]), golden["sedd_log_score"])
    same(nats, golden["nll_sedd"])
    same(nats.mean(), golden.loss("loss_sedd"))


def test_mdlm_weights_read_as_d3pm() -> None:
    """A thousand steps and the reconstruction; the prediction has weight on the mask, and nothing is carried over."""
    golden = load("mdlm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Softmax())
    process, t = Interpolating(Vocab(41, mask=40), Linear(), MaskNoise()), golden.time("t_T1000").double()
    steps = 1000 * process.nelbo(lm.predict(golden["xt"], t), NoisySample(golden["xt"], t, golden["x0"]), t - 1 / 1000)
    everywhere = torch.ones_like(golden["x0"], dtype=torch.bool)
    nats = steps + lm.predict(golden["x0"], torch.zeros(3, 1)).nll(everywhere, golden["x0"])
    same(nats, golden["nll_d3pm_T1000"])
    same(nats.mean(), golden.loss("loss_d3pm_T1000"))


# BD3-LM


def test_bd3lm_exported_settings_say_the_same() -> None:
    golden = load("bd3lm")
    trained, _ = _dit_layout(golden.weights, golden.config)
    exported, _ = _dit_layout(golden.weights, golden.expected["hf_config"])
    assert trained == exported
    assert trained.pattern == BlockCausal(4)


def test_bd3lm_mask_of_two_streams() -> None:
    golden = load("bd3lm")
    dense = AttentionMask(BlockCausal(4).streams(torch.arange(16)), torch.arange(32), 32).dense()
    assert torch.equal(dense, golden["block_diff_mask_2L"].bool())


def test_bd3lm_logits_of_two_streams() -> None:
    golden = load("bd3lm")
    net = network(_dit_layout(golden.weights, golden.config))
    found = logits(net, golden["xt"], torch.zeros(3, 1), Context(clean=golden["x0"]))
    same(found, golden["logits_train"])


def test_bd3lm_logits_of_one_stream() -> None:
    golden = load("bd3lm")
    net = network(_dit_layout(golden.weights, golden.config))
    same(logits(net, golden["sample_mode_input"], torch.zeros(3, 1)), golden["sample_mode_logits"])


def test_bd3lm_logits_after_a_cached_block() -> None:
    golden = load("bd3lm")
    net = network(_dit_layout(golden.weights, golden.config))
    done, block = golden["sample_mode_input"].split(4, 1)
    found = logits(net, block, torch.zeros(3, 1), Context(cache=net.absorb(done), positions=torch.arange(4, 8)[None]))
    same(found, golden["sample_mode_logits"][:, 4:])


def test_bd3lm_prediction_and_bound() -> None:
    golden = load("bd3lm")
    lm = model(_dit_layout(golden.weights, golden.config), 40, Subs())
    pred = lm.predict(golden["xt"], golden["t"], Context(clean=golden["x0"]))
    nats = lm.process.nelbo(pred, NoisySample(golden["xt"], golden["t"], golden["x0"]))
    same(pred.x, impossible_as_inf(golden["log_p_x0"]))
    same(nats, golden["nll"])
    same(nats.mean(), golden.loss("loss_with_bos"))
    same(nats[:, 1:].mean(), golden.loss("loss_ignore_bos"))


@pytest.mark.parametrize(
    ("name", "schedule"), [("loglinear", Linear()), ("square", Polynomial(2.0)), ("square_root", Polynomial(0.5))]
)
def test_bd3lm_schedules(name: str, schedule: Schedule) -> None:
    golden = load("bd3lm")
    t = golden["sched_t"].double()
    lost = 1 - schedule.keep(t)
    same(lost, golden[f"sched_{name}_move_chance"].double(), atol=1e-7)
    same(schedule.slope(t) / lost, golden[f"sched_{name}_loss_scale"].double(), atol=1e-7)


def test_bd3lm_cosine_is_ours_shrunk_by_epsilon() -> None:
    golden = load("bd3lm")
    t, eps, cosine = golden["sched_t"].double(), 1e-3, Cosine()
    lost = 1 - (1 - eps) * cosine.keep(t)
    same(lost, golden["sched_cosine_move_chance"].double(), atol=1e-7)
    # the ε in its denominator makes the original's weight a little less than that of the bound
    same((1 - eps) * cosine.slope(t) / (lost + eps), golden["sched_cosine_loss_scale"].double(), atol=1e-7)


# UDLM and FlexMDM


def test_udlm_labels_stand_beside_any_time() -> None:
    golden = load("udlm")
    net = network(_dit_layout(golden.weights, golden.config))
    level = golden.time("sigma").expand(3, 16).clone()
    labeled = Context(condition=Condition(label=golden["cond"]))
    same(net.logits(net(golden["xt"], level, context=labeled)), golden["logits_cond"])
    level[:, 8:] = 0.0  # another time for half of the tokens
    some = net.logits(net(golden["xt"], level, context=labeled))
    alone = [
        net.logits(net(golden["xt"][i : i + 1], level[i : i + 1], context=labeled.rows(torch.tensor([i]))))
        for i in range(3)
    ]
    same(some, torch.cat(alone))


def test_labels_need_time_and_full_attention() -> None:
    config, _ = _dit_layout(load("udlm").weights, load("udlm").config)
    assert config.classes == 3
    for changed in ({"time": None}, {"pattern": BlockCausal(4)}):
        with pytest.raises(ValueError, match="they need time and full attention"):
            replace(config, **changed)


@pytest.mark.parametrize(("name", "counts"), [("flexmdm_expectation", False), ("flexmdm_distribution", True)])
def test_flexmdm_has_a_layer_for_gaps(name: str, counts: bool) -> None:
    golden = load(name)
    config, state = _dit_layout(golden.weights, golden.config)
    assert (config.gaps, config.gap_counts) == (16, counts)
    assert sum(key.startswith("gaps.") for key in state) == (5 if counts else 7)


# LLaDA and Llama

LLAMA_NAMES = {
    "model.transformer.wte": "model.embed_tokens",
    "model.transformer.ln_f": "model.norm",
    "model.transformer.ff_out": "lm_head",
    "model.transformer.blocks": "model.layers",
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "attn_out": "self_attn.o_proj",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
LLAMA_SETTINGS = {
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 144,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000},
    "vocab_size": 40,
}


def as_llama(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in weights.items():
        for old, new in LLAMA_NAMES.items():
            name = name.replace(old, new)
        renamed[name] = tensor
    return renamed


def test_llada_logits() -> None:
    golden = load("llada")
    same(logits(network(_llada_layout(golden.weights, golden.config)), golden["xt"]), golden["logits"])


def test_llada_logits_of_padded_rows() -> None:
    golden = load("llada")
    real = golden["attention_mask_rightpad"].bool()
    found = logits(network(_llada_layout(golden.weights, golden.config)), golden["xt"], context=Context(pad=~real))
    assert 0 < int(real.sum()) < real.numel()
    same(found[real], golden["logits_with_attention_mask"][real])


def test_llada_pretraining_loss() -> None:
    golden = load("llada")
    lm = model(_llada_layout(golden.weights, golden.config), 37, LEARNED_MASK)
    pred, noised = lm.predict(golden["xt"], golden["p_mask"]), NoisySample(golden["xt"], golden["p_mask"], golden["x0"])
    assert torch.equal(lm.process.undetermined(noised), golden["masked_indices"].bool())
    for term in (TokenCrossEntropy(power=1.0), Bound()):  # the same for the linear schedule
        same(term(lm.process, pred, noised, NoiseTimes(golden["p_mask"])).mean(), golden.loss("pretrain_loss"))


def test_llama_is_llada_by_other_names() -> None:
    golden = load("llada")
    same(logits(network(_llama_layout(as_llama(golden.weights), LLAMA_SETTINGS)), golden["xt"]), golden["logits"])


def test_llama_with_tied_output_stores_it_or_not() -> None:
    weights = as_llama(load("llada").weights)
    once = {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}
    twice = once | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    settings = LLAMA_SETTINGS | {"tie_word_embeddings": True}
    assert _llama_layout(once, settings)[1].keys() == _llama_layout(twice, settings)[1].keys()
    with pytest.raises(LayoutError, match=r"tie lm_head\.weight to embed_tokens\.weight, but the two differ"):
        _llama_layout(weights, settings)


# Dream (Qwen2)


def test_dream_logits() -> None:
    golden = load("dream")
    same(logits(network(_qwen2_layout(golden.weights, golden.config)), golden["xt"]), golden["logits"])


def test_dream_logits_of_padded_rows() -> None:
    golden = load("dream")
    real = golden["attention_mask_leftpad"].bool()
    found = logits(network(_qwen2_layout(golden.weights, golden.config)), golden["xt"], context=Context(pad=~real))
    # the original counts positions from the first real token; rotary attention sees only their differences
    assert not torch.equal(golden["position_ids_attention_mask"][:, -1], torch.full((3,), 15))
    same(found[real], golden["logits_attention_mask"][real])


def test_dream_prediction_is_shifted() -> None:
    golden = load("dream")
    lm = model(_qwen2_layout(golden.weights, golden.config), 38, Shift(LEARNED_MASK))
    masked = golden["masked_indices"].bool()
    same(lm.predict(golden["xt"], golden.time()).at(masked), golden["logits_shifted"].log_softmax(-1)[masked])


def test_dream_loss() -> None:
    golden = load("dream")
    lm = model(_qwen2_layout(golden.weights, golden.config), 38, Shift(LEARNED_MASK))
    pred, noised = lm.predict(golden["xt"], golden.time()), NoisySample(golden["xt"], golden.time(), golden["x0"])
    nats = TokenCrossEntropy(power=1.0)(lm.process, pred, noised, NoiseTimes(golden.time()))
    same(nats.mean(), golden.loss("loss_shifted_over_t"))


# DiffuGPT (GPT-2)


def test_diffugpt_logits() -> None:
    golden = load("diffugpt")
    same(logits(network(_gpt2_layout(golden.weights, golden.config)), golden["xt"]), golden["logits"])


def test_diffugpt_causal_logits() -> None:
    golden = load("diffugpt")
    config, state = _gpt2_layout(golden.weights, golden.config)
    net = network((replace(config, pattern=BlockCausal(1)), state))  # a block of one token is the causal mask
    same(logits(net, golden["xt"]), golden["logits_causal_ratio0"])


def test_diffugpt_as_an_autoregressive_network() -> None:
    golden = load("diffugpt")
    config, state = _gpt2_layout(golden.weights, golden.config)
    for row, expected in zip(golden["xt"], golden["logits_causal_ratio0"], strict=True):
        net = network((replace(config, pattern=Causal()), state), start=int(row[0]))
        # slot i reads token i − 1 and slot 0 the start token: the token at the end is asked about, not read
        same(logits(net, row.roll(-1)[None]), expected[None])


def test_diffugpt_losses() -> None:
    golden = load("diffugpt")
    lm = model(_gpt2_layout(golden.weights, golden.config), 39, Shift(LEARNED_MASK))
    pred, noised = lm.predict(golden["xt"], golden.time()), NoisySample(golden["xt"], golden.time(), golden["x0"])
    masked = golden["masked_indices"].bool()
    nll, weighted = (
        TokenCrossEntropy(power)(lm.process, pred, noised, NoiseTimes(golden.time())) for power in (0.0, 1.0)
    )
    assert not masked[:, 0].any()  # nothing before it could predict it
    same(nll[:, 1:], golden["nll_shifted"])
    same(nll.sum() / masked.sum(), golden.loss("nll_masked_mean"))
    same(weighted.sum() / masked.sum(), golden.loss("loss_shift_dsigma_mean_over_masked"))


# What does not fit


def test_buffers_are_ignored() -> None:
    golden = load("diffugpt")
    buffers = {f"denoise_model.h.{i}.attn.{name}": torch.ones(()) for i in range(2) for name in ("bias", "masked_bias")}
    assert (
        _gpt2_layout(golden.weights | buffers, golden.config)[1].keys()
        == _gpt2_layout(golden.weights, golden.config)[1].keys()
    )


def test_missing_and_unexpected_tensors_are_named() -> None:
    golden = load("mdlm")
    weights = {name.replace("norm2", "norm3"): tensor for name, tensor in golden.weights.items()}
    weights |= {f"extra.{i}": torch.ones(1) for i in range(6)}
    with pytest.raises(LayoutError) as caught:
        _dit_layout(weights, golden.config)
    assert str(caught.value) == (
        "the weights are of another layout or size: missing blocks.0.norm2.weight [48], blocks.1.norm2.weight [48]; "
        "unexpected blocks.0.norm3.weight, blocks.1.norm3.weight, extra.0, extra.1 and 4 more"
    )


def test_a_layer_too_few_is_noticed() -> None:
    golden = load("dream")
    weights = {name: tensor for name, tensor in golden.weights.items() if ".1." not in name}
    with pytest.raises(LayoutError, match=r"missing layers\.1\.input_layernorm\.weight \[48\], .* and 8 more"):
        _qwen2_layout(weights, golden.config)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"intermediate_size": 96}, r"0\.mlp\.gate_proj\.weight is \[104, 48\], where the settings need \[96, 48\]"),
        ({"num_key_value_heads": 4}, r"k_proj\.weight is \[24, 48\], where the settings need \[48, 48\]"),
        ({"hidden_act": "gelu"}, r"hidden_act='gelu' is not supported; only hidden_act='silu'"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_type='yarn' is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window=True is not supported"),
        ({"rms_norm_eps": None}, "the settings lack rms_norm_eps"),
    ],
)
def test_settings_that_do_not_fit_are_named(changed: dict[str, object], message: str) -> None:
    golden = load("dream")
    with pytest.raises(LayoutError, match=message):
        _qwen2_layout(golden.weights, golden.config | changed)


def test_another_layout_is_noticed() -> None:
    with pytest.raises(LayoutError, match=r"lack vocab_embed\.embedding; they are of another layout"):
        _dit_layout(load("llada").weights, load("mdlm").config)


def test_a_tensor_under_two_names_is_noticed() -> None:
    golden = load("diffugpt")
    weights = golden.weights | {"transformer.wte.weight": golden.weights["embed_tokens.weight"]}
    with pytest.raises(LayoutError, match=r"hold wte\.weight twice"):
        _gpt2_layout(weights, golden.config)
