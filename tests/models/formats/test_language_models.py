"""Language models of other projects say, lose and write what the originals do (see tests/golden)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import models
from torch import Tensor

from redraft.core import Batch, Canvas, Context, Masked, Vocab, rng
from redraft.decoding import (
    Blocks,
    Confidence,
    ConfidenceThreshold,
    Entropy,
    LeftToRight,
    Margin,
    PathPlanning,
    PromptGuidedSampler,
    RankedPick,
    Sampler,
    SubBlocks,
    TimePace,
    Unmask,
    final_canvas,
)
from redraft.models import BlockCausal, Causal, CheckpointError, DiffusionLM, Full, Shift, Subs, reference_outputs
from redraft.tasks import count_calls, score
from redraft.training import likelihood, load

GOLDEN = Path(__file__).parents[2] / "golden"
CAUSAL = ["gpt2", "llama", "llama_tied", "qwen2", "qwen3"]
A2D = ["a2d_llama", "a2d_qwen2", "a2d_qwen3"]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@cache
def io(name: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / name / "io.safetensors")


@cache
def loaded(name: str, mask: int | None = None, attention: str | None = None) -> DiffusionLM:
    return load(GOLDEN / name, mask=mask, attention=attention)


def scalar(name: str, key: str) -> float:
    value: float = json.loads((GOLDEN / name / "expected.json").read_text())["scalars"][key]
    return value


def same(actual: Tensor, expected: Tensor | float, atol: float = 2e-5, rtol: float = 1e-4) -> None:
    torch.testing.assert_close(actual.float(), torch.as_tensor(expected).float(), atol=atol, rtol=rtol)


def canvas(prompt: Tensor, length: int, model: DiffusionLM) -> Canvas:
    z = torch.full((1, length), model.config.vocab.masked)
    z[:, : prompt.shape[1]] = prompt
    return Canvas(z, torch.arange(length)[None] < prompt.shape[1])


def written(model: DiffusionLM, sampler: Sampler, prompt: Tensor, length: int) -> Tensor:
    start = canvas(prompt, length, model)
    return final_canvas(sampler(model, model.process, start, rng=rng(0, torch.zeros(1, dtype=torch.int64)))).z


# --- plain causal models ---


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_logits(name: str) -> None:
    model = loaded(name)
    same(reference_outputs(model, io(name)["input_ids"]), io(name)["logits"])
    assert model.config.process == Masked(Vocab(41, mask=40)), "one state more than words, for what is to be written"
    assert model.config.network.pattern == Causal()
    assert model.config.head == Shift(Subs())
    assert model.network.embedding.weight.shape[0] == 40, "the mask needs no row"
    assert model.assumed == ()


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("key", ["loss", "loss_prefix_ignored"])
def test_causal_likelihood_is_exact(name: str, key: str) -> None:
    """The first token of a row has nothing before it: it is given, and not counted."""
    tokens, labels = io(name)["input_ids"], io(name)["labels_prefix_ignored"]
    learn = torch.ones_like(tokens, dtype=torch.bool) if key == "loss" else labels != -100
    found = likelihood(loaded(name), [Batch(tokens, learn)])
    same(found.row_nats.sum() / found.row_tokens.sum(), scalar(name, key))
    assert found.relative_error == 0
    if key == "loss":
        same(found.row_nats, io(name)["nll"].sum(-1))


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("cached", [True, False])
def test_greedy_writing_is_the_originals(name: str, cached: bool) -> None:
    model = loaded(name)
    for i in range(3):
        expected = io(name)[f"greedy_{i}"]
        sampler = Blocks(Unmask(1), cache=cached)
        assert torch.equal(written(model, sampler, io(name)[f"prompt_{i}"], expected.shape[1]), expected)


def test_scores_are_exact(tmp_path: Path) -> None:
    """`redraft.score` of a text is the sum of what its tokens cost, but for the first."""
    path = tmp_path / "qwen2"
    path.mkdir()
    for file in ("config.json", "model.safetensors"):
        (path / file).write_bytes((GOLDEN / "qwen2" / file).read_bytes())
    backend = tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(39)}, unk_token="w0"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.add_special_tokens(["</s>"])
    backend.save(str(path / "tokenizer.json"))
    ids = io("qwen2")["input_ids"][0].clamp(1, 38)
    found = score(load(path), [" ".join(f"w{i}" for i in ids.tolist())])
    row = torch.cat([ids, torch.tensor([39])])[None]
    log_p = reference_outputs(load(path), row)[:, :-1].log_softmax(-1).gather(-1, row[:, 1:, None])
    assert found.exact
    assert found[0].tokens == 16
    assert found[0].bits == pytest.approx(-float(log_p.sum()) / math.log(2), rel=1e-5)


def test_the_cache_costs_one_call_per_token() -> None:
    model, prompt = loaded("llama"), io("llama")["prompt_0"]
    with count_calls(model) as counted:
        written(model, Blocks(Unmask(1)), prompt, 16)
    assert counted.rows == 12, "one for the prompt, then one for each of twelve tokens but the last"


def test_rows_of_a_batch_write_as_if_alone() -> None:
    """Prompts of different lengths beside each other, shorter rows padded at their end."""
    model, given = loaded("qwen3"), [io("qwen3")[f"prompt_{i}"][0] for i in range(3)]
    z, length = torch.full((3, 22), 40), torch.tensor([[16], [19], [22]])
    for row, prompt in zip(z, given, strict=True):
        row[: len(prompt)] = prompt
    place = torch.arange(22)
    fixed = (place < torch.tensor([[len(prompt)] for prompt in given])) | (place >= length)
    start = Canvas(z, fixed, Context(pad=place >= length))
    end = final_canvas(Blocks(Unmask(1))(model, model.process, start, rng=rng(0, torch.arange(3)))).z
    for i in range(3):
        assert torch.equal(end[i : i + 1, : int(length[i])], io("qwen3")[f"greedy_{i}"])


def test_the_first_token_must_be_given() -> None:
    model = loaded("gpt2")
    with pytest.raises(ValueError, match="nothing predicts the first token of a row; give it"):
        final_canvas(
            Blocks(Unmask(1))(model, model.process, canvas(torch.zeros(1, 0), 4, model), rng=rng(0, torch.arange(1)))
        )


# --- models that began as causal ones, under the causal mask again ---


@pytest.mark.parametrize(("name", "key"), [("open_dcoder", "logits_causal"), ("diffugpt", "logits_causal_ratio0")])
def test_attention_may_be_chosen(name: str, key: str) -> None:
    same(reference_outputs(loaded(name, attention="causal"), io(name)["xt"]), io(name)[key])


def test_a_plain_llama_may_fill_masks(tmp_path: Path) -> None:
    """DiffuLLaMA's settings are those of a plain Llama."""
    model = loaded("llama", mask=37, attention="full")
    assert model.config.head == Shift(Subs())
    assert (model.config.vocab, model.config.network.pattern) == (Vocab(40, mask=37), Full())
    assert any("causal" in line for line in model.assumed)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("llama", {"attention": "sideways"}, "must be causal, full or block:SIZE, such as block:32"),
        ("llama", {"attention": "block:0"}, "must be causal, full or block:SIZE"),
        ("llama", {"mask": 3}, "mask=3 was given, but this model predicts the next token"),
        ("llama", {"attention": "full"}, "names the mask token; give its id: mask=ID"),
        ("llama", {"attention": "full", "mask": 40}, "mask=40 is not one of the 40 ids"),
        ("llama", {"attention": "full", "mask": "<M>"}, "mask='<M>' is not a token of its tokenizer"),
        ("a2d_qwen3", {}, "names the mask token; give its id: mask=ID"),
        ("a2d_qwen3", {"mask": 37, "attention": "causal"}, "its states do not predict the next token"),
        ("sdar", {"mask": 36}, "mask=36 contradicts its settings, which give 37"),
        ("llada", {"attention": "causal"}, "attention=causal was given, but this model has full attention"),
        ("udlm", {"mask": 3}, "mask=3 was given, but this model has no mask token"),
    ],
)
def test_choices_that_contradict_are_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(GOLDEN / name, **options)  # type: ignore[arg-type]


# --- A2D ---


@pytest.mark.parametrize("name", A2D)
def test_a2d_logits(name: str) -> None:
    given = io(name)
    same(reference_outputs(loaded(name, 37), given["xt"]), given["logits"])
    assert loaded(name, 37).assumed == ("full attention (MDLM); give attention=block:32 if it is BD3-LM",)
    blocks = loaded(name, 37, "block:4")
    same(reference_outputs(blocks, given["bd3lm_block_causal_input"]), given["bd3lm_block_causal_logits"])
    states = blocks.network(given["bd3lm_xt"], None, Context(clean=given["x0"]))
    same(blocks.network.logits(states), given["bd3lm_logits_train"])
    assert blocks.assumed == ()


@pytest.mark.parametrize("name", A2D)
def test_a2d_padding(name: str) -> None:
    given, model = io(name), loaded(name, 37)
    real = given["attention_mask_rightpad"] != 0
    found = model.network.logits(model.network(given["xt"], None, Context(pad=~real)))
    same(found[real], given["logits_with_attention_mask"][real])


@pytest.mark.parametrize("name", A2D)
@pytest.mark.parametrize("kind", ["mdlm", "bd3lm"])
def test_a2d_losses(name: str, kind: str) -> None:
    """The originals leave the mask among the words of the softmax; our head excludes it."""
    given, prefix = io(name), "" if kind == "mdlm" else "bd3lm_"
    model = loaded(name, 37, "full" if kind == "mdlm" else "block:4")
    xt, hidden, t = given[f"{prefix}xt"], given[f"{prefix}masked_indices"].bool(), given[f"{prefix}t"][:, None]
    states = model.network(xt, None, Context(clean=None if kind == "mdlm" else given["x0"]))
    nll = -model.network.logits(states).log_softmax(-1).gather(-1, given["x0"][..., None]).squeeze(-1) * hidden
    learned = given["labels"] != -100
    for weight, w in (("uniform", torch.ones_like(t)), ("scheduler", 1 / (t + 1e-6))):
        nats = nll * w
        same(nats.sum() / learned.sum(), scalar(name, f"{kind}_loss_token_{weight}"))
        same((nats.sum(-1) / learned.sum(-1)).mean(), scalar(name, f"{kind}_loss_sequence_{weight}"))
        same(nats.sum() / len(xt), scalar(name, f"{kind}_loss_batch_{weight}"))


@pytest.mark.parametrize("name", A2D)
def test_a2d_writes_blocks(name: str) -> None:
    model, given = loaded(name, 37, "block:4"), io(name)
    for steps in (2, 4):
        found = written(model, Blocks(Unmask(steps)), given["prompt_whole_blocks"], 20)
        assert torch.equal(found, given[f"bd3lm_gen_new12_block4_perblock{steps}"])


@pytest.mark.parametrize("name", A2D)
@pytest.mark.parametrize(
    ("key", "block", "steps"),
    [
        ("new12_block12_steps12", 12, 12),
        ("new12_block6_steps12", 6, 6),
        ("new12_block6_steps6", 6, 3),
        ("shift_new12_block6_steps12", 6, 6),
    ],
)
def test_a2d_writes_anywhere(name: str, key: str, block: int, steps: int) -> None:
    model = load(GOLDEN / name, mask=37)
    if key.startswith("shift"):
        model.config = replace(model.config, head=Shift(Subs()))
    for i in range(2):
        prompt = io(name)[f"prompt_{i}"]
        length = prompt.shape[1] + 12
        found = written(model, Blocks(Unmask(steps), decode_block=block), prompt, length)
        assert torch.equal(found, io(name)[f"mdlm_gen_{key}"][i : i + 1, :length])


@pytest.mark.parametrize("name", A2D)
@pytest.mark.parametrize("cached", [True, False])
def test_a2d_writes_rows_of_different_lengths(name: str, cached: bool) -> None:
    """Prompts end at the end of a block, padding stands before them; rotary attention sees only differences."""
    model, truth = loaded(name, 37, "block:4"), io(name)["bd3lm_gen_ragged_new12_block4_perblock4"]
    prompts, place = [io(name)[f"prompt_{i}"][0] for i in range(2)], torch.arange(truth.shape[1])
    begin = truth.shape[1] - 12
    z = torch.stack([F.pad(prompt, (begin - len(prompt), 12), value=37) for prompt in prompts])
    pad = place < torch.tensor([[begin - len(prompt)] for prompt in prompts])
    start = Canvas(z, (place < begin).expand(2, -1), Context(pad=pad))
    end = final_canvas(Blocks(Unmask(4), cache=cached)(model, model.process, start, rng=rng(0, 2))).z
    assert torch.equal(end[~pad], truth[~pad])


@pytest.mark.parametrize("name", A2D)
def test_a2d_is_guided_by_its_prompt(name: str) -> None:
    for i in range(2):
        prompt = io(name)[f"prompt_{i}"]
        length = prompt.shape[1] + 12
        sampler = PromptGuidedSampler(Blocks(Unmask(6), decode_block=6), 2.0)
        found = written(loaded(name, 37), sampler, prompt, length)
        assert torch.equal(found, io(name)["mdlm_gen_cfg1.0_new12_block6_steps12"][i : i + 1, :length])


@pytest.mark.parametrize("name", A2D)
def test_a2d_fills_holes(name: str) -> None:
    model, start = loaded(name, 37), io(name)["infill_canvas"]
    sampler = Unmask(6, Confidence(), TimePace(end=0.0, nearest=True))
    found = final_canvas(sampler(model, model.process, Canvas(start, start != 37), rng=rng(0)))
    assert torch.equal(found.z, io(name)["mdlm_infill_block16_steps6"])


def test_the_name_of_an_a2d_model_tells_its_attention(tmp_path: Path) -> None:
    for name, pattern in (("Qwen3-0.6B-diffusion-bd3lm-v0.1", BlockCausal(32)), ("Qwen3-0.6B-diffusion-mdlm", Full())):
        (tmp_path / name).symlink_to(GOLDEN / "a2d_qwen3")
        model = load(tmp_path / name, mask=37)
        assert model.config.network.pattern == pattern
        assert "its name says" in model.assumed[0]


# --- Open-dCoder, SDAR, Fast-dLLM v2 ---


def test_open_dcoder() -> None:
    model, given = loaded("open_dcoder", 37), io("open_dcoder")
    assert model.assumed == ("full attention: its settings name custom code, as Open-dCoder's do",)
    same(reference_outputs(model, given["xt"]), given["logits"])
    hidden = given["masked_indices"].bool()
    logits = torch.cat([given["logits"][:, :1], reference_outputs(model, given["xt"])[:, :-1]], 1)
    same(logits, given["logits_shifted"])
    nll = -logits.log_softmax(-1).gather(-1, given["x0"][..., None]).squeeze(-1)
    same((nll * hidden)[:, 1:], given["nll_shifted"])
    for row in range(3):
        where = hidden[row].clone()
        where[0] = False
        mdm, path = nll[row][where].mean(), (nll[row][where].neg().exp() * nll[row][where] / given["t"][row]).mean()
        same(mdm, scalar("open_dcoder", f"loss_mdm_row{row}"))
        same(path, scalar("open_dcoder", f"loss_path_row{row}"))
        same(mdm + path, scalar("open_dcoder", f"loss_row{row}"))


@pytest.mark.parametrize("steps", [5, 12])
@pytest.mark.parametrize("pick", [Confidence(), Margin(), Entropy()], ids=["maskgit_plus", "topk_margin", "entropy"])
def test_open_dcoder_writes_in_three_orders(pick: RankedPick, steps: int, request: pytest.FixtureRequest) -> None:
    order = request.node.callspec.id.rsplit("-", 1)[0]
    expected = io("open_dcoder")[f"gen_{order}_steps{steps}"]
    found = written(loaded("open_dcoder", 37), Unmask(steps, pick, TimePace()), io("open_dcoder")["prompt"], 18)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("steps", [5, 12])
def test_open_dcoder_plans_itself(steps: int) -> None:
    """P2: written tokens compete with masked ones, and some are masked again on the way."""
    model, prompt = load(GOLDEN / "open_dcoder", mask=37), io("open_dcoder")["prompt"]
    model.config = replace(model.config, head=Shift(Subs(carry_over=False)))
    assert torch.equal(written(model, PathPlanning(steps), prompt, 18), io("open_dcoder")[f"gen_p2_steps{steps}"])
    z = [c.z for c in PathPlanning(steps)(model, model.process, canvas(prompt, 18, model), rng=rng(0))]
    assert [int((step == 37).sum()) for step in z[1:]] == [12 * (steps - i - 1) // steps for i in range(steps)]
    again = sum(int(((before != 37) & (now == 37)).sum()) for before, now in pairwise(z))
    assert again > 0, "nothing was taken back"


def test_sdar() -> None:
    model, given = loaded("sdar"), io("sdar")
    same(reference_outputs(model, given["block_causal_input"]), given["block_causal_logits"])
    logits = model.network.logits(model.network(given["xt"], None, Context(clean=given["x0"])))
    same(logits, given["logits_train"])
    hidden = given["masked_indices"].bool()
    nll = -logits.log_softmax(-1).gather(-1, given["x0"][..., None]).squeeze(-1)
    weighted = torch.where(hidden, nll / given["p_mask"], 0.0)
    same(weighted.sum() / (given["labels"] != -100).sum(), scalar("sdar", "loss"))


@pytest.mark.parametrize("name", [name for name in sorted(io("sdar")) if name.startswith("gen_")])
def test_sdar_writes_by_its_three_rules(name: str) -> None:
    """A fixed number of the surest at each step, the leftmost, or all that are sure enough."""
    model, given = loaded("sdar"), io("sdar")
    prompt, rule, value, steps = re.findall(r"gen_prompt(\d)_([a-z]+)([\d.]*)_steps(\d)", name)[0]
    rules = {"static": Unmask(int(steps)), "sequential": Unmask(int(steps), LeftToRight())}
    inner = rules.get(rule) or Unmask(None, ConfidenceThreshold(float(value)))
    with count_calls(model) as counted:
        assert torch.equal(written(model, Blocks(inner), given[f"prompt_{prompt}"], 20), given[name])
    assert counted.rows == scalar("sdar", f"{name}_nfe") - 1, "the last block needs not be stored"


def test_sdar_without_its_settings(tmp_path: Path) -> None:
    settings = json.loads((GOLDEN / "sdar" / "config.json").read_text())
    for name, block in (("SDAR-8B-Chat-b32", 32), ("SDAR-1.7B-Chat", 4)):
        (tmp_path / name).mkdir()
        plain = {key: value for key, value in settings.items() if key != "block_size"}
        (tmp_path / name / "config.json").write_text(json.dumps(plain))
        (tmp_path / name / "model.safetensors").write_bytes((GOLDEN / "sdar" / "model.safetensors").read_bytes())
        model = load(tmp_path / name)
        assert model.block == block
        assert model.assumed[0].startswith(f"blocks of {block}, as")


def test_fast_dllm_v2() -> None:
    """The loss is over a noisy row and its complement, each token predicted by the state before it."""
    model, given = loaded("fast_dllm_v2", 37), io("fast_dllm_v2")
    assert (model.block, model.config.head) == (8, Shift(Subs()))
    same(reference_outputs(model, given["block_causal_input"]), given["block_causal_logits"])
    nats, count = torch.tensor(0.0), 0
    for suffix in ("", "_complementary"):
        logits = model.network.logits(model.network(given[f"xt{suffix}"], None, Context(clean=given["x0"])))
        same(logits, given[f"logits_train{suffix}"])
        hidden = (given[f"xt{suffix}"] == 37)[:, 1:]
        nll = -logits[:, :-1].log_softmax(-1).gather(-1, given["x0"][:, 1:, None]).squeeze(-1)
        nats, count = nats + nll[hidden].sum(), count + int(hidden.sum())
    same(nats / count, scalar("fast_dllm_v2", "loss"))


@pytest.mark.parametrize("name", [name for name in sorted(io("fast_dllm_v2")) if name.startswith("gen_")])
def test_fast_dllm_v2_writes_blocks_in_parts(name: str) -> None:
    """The first token of a block comes from the block before; then parts from the left, all that is sure enough.

    With its cache of a block, the rest of the block is read only until the first token of a part is written.
    """
    model, given = loaded("fast_dllm_v2", 37), io("fast_dllm_v2")
    prompt, size, threshold = re.findall(r"prompt(\d)_small(\d)_threshold([\d.]+)", name)[0]
    inner = Unmask(None, ConfidenceThreshold(float(threshold)))
    sampler = Blocks(SubBlocks(inner, int(size), first=True, cache="blockcache" in name))
    assert sampler.cache_kind(model.block) == ("approximate" if "blockcache" in name else "exact")
    with count_calls(model) as counted:
        found = written(model, sampler, given[f"prompt_{prompt}"], given[name].shape[1])
    assert torch.equal(found, given[name])
    assert counted.rows == scalar("fast_dllm_v2", f"{name}_nfe")


def test_a_shift_looks_behind_the_cache() -> None:
    """The first token of a block is predicted by the last one of the block before, with a cache and without."""
    model, prompt = loaded("fast_dllm_v2", 37), io("fast_dllm_v2")["prompt_1"]
    found = [written(model, Blocks(Unmask(8), cache=cached), prompt, 32) for cached in (True, False)]
    assert torch.equal(*found)
    ahead = reference_outputs(model, prompt)[0, -1]
    first = model.predict(canvas(prompt, 24, model).z, torch.ones(1, 1)).x[0, 16]
    same(first, ahead.index_fill(0, torch.tensor([37]), -torch.inf).log_softmax(-1))
