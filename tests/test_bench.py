"""The benchmarks themselves: what they count, what they say, and that the page shows the committed rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from bench import __main__ as device_table, core, decoding, limit, models, parts, table
from bench.products import flops, recorded, repeated
from bench.race import compared, report, tell
from bench.reference import Reference, empty
from redraft.models import DiffusionLM
from redraft.tasks import TextModel, open_model
from redraft.training import fit, presets
from redraft.training.runs import variations

WIDTH, LENGTH, ROWS, VOCAB = 64, 16, 3, 11


def test_the_products_of_a_linear_layer_are_three() -> None:
    x, w = torch.randn(5, 7, requires_grad=True), torch.randn(3, 7, requires_grad=True)
    products = recorded(lambda: F.linear(x, w).sum().backward())
    assert sorted(p.flops for p in products) == [2 * 5 * 7 * 3] * 3
    assert flops(limit.linear(5, 7, 3, torch.float32)) == flops(products)
    repeated(products)()


def test_the_parts_of_a_training_step_are_its_whole() -> None:
    found = parts.shares(parts.profiled(VOCAB, ROWS, 1, width=WIDTH, layers=1))
    assert sum(found.values()) == pytest.approx(1)
    assert found["products of the linear layers"] > 0.02
    assert found["AdamW, average of the weights, norm of the gradient"] > 0


@pytest.mark.parametrize("fused", [True, False])
def test_the_products_of_attention_are_six(fused: bool) -> None:
    """The fused kernel counts as much as the formula that it computes."""
    q, k, v = (torch.randn(2, 3, n, 8, requires_grad=True) for n in (4, 5, 5))

    def attend() -> None:
        fused_out = F.scaled_dot_product_attention(q, k, v) if fused else (q @ k.mT).softmax(-1) @ v
        fused_out.sum().backward()

    products = recorded(attend)
    assert [p.flops for p in products] == [2 * 6 * 4 * 5 * 8] * 6
    repeated(products)()


def test_a_training_step_counts_what_it_computes() -> None:
    """The output layer and the last block's queries and MLP only where something is masked."""
    model = core.build(VOCAB, width=WIDTH, layers=1)
    tokens = torch.randint(0, VOCAB, (ROWS, LENGTH))
    products = recorded(core.our_step(model, tokens, "fp32"))
    masked = next(p.left.shape[0] for p in products if p.right.shape[-1] == VOCAB + 1)
    widest = next(p.left.shape[1] for p in products if len(p.left.shape) == 3)  # queries of the row that has most
    hidden = model.config.network.hidden_width
    each = WIDTH * (WIDTH + WIDTH + 3 * hidden + VOCAB + 1)  # queries, out, MLP, output layer
    linear = masked * each + ROWS * LENGTH * WIDTH * 2 * WIDTH  # and the keys and values of all
    assert 0 < masked < ROWS * LENGTH
    assert flops(products) == 3 * 2 * linear + 6 * 2 * ROWS * widest * LENGTH * WIDTH


def test_the_limit_names_every_layer_and_direction() -> None:
    (row,) = limit.limits({"fp32": torch.float32}, rows=4)
    assert row["limit"] == "fp32"
    assert len(row["products"]) == 3 * len(limit.LAYERS)
    assert row["gflops"] == max(row["products"].values()) > 0


def test_ratios_are_taken_round_by_round() -> None:
    found = compared([(2.0, 1.0, 4.0), (3.0, 3.0, 4.0), (9.0, 3.0, 3.0)])
    assert found == {"ratio": 2.0, "ours_seconds": 3.0, "theirs_seconds": 3.0}
    assert compared([(2.0, 1.0, 4.0)], 2)["ratio"] == 0.5


def test_a_missed_goal_is_told_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    met, missed = report("a", 1.0, ratio=0.5), report("b", 2.0, ratio=1.5, at_most=False)
    assert tell([met, report("c", None, ratio=3.0)]) == 0
    assert tell([met, missed], tmp_path / "results" / "rows.jsonl") == 1
    assert table.read(tmp_path / "results" / "rows.jsonl") == [met, missed]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["ok"] is False


def test_the_table_shows_each_row_and_where_it_was_measured() -> None:
    place = limit.machine("make bench") | {"precision": "fp32 (tried)"}
    rows = [place, {"limit": "fp32", "gflops": 123.4}, report("a", 1.05, ratio=1.0), report("b", None, ratio=2.0)]
    rows.append(report("c", 3.0, ratio=2.5, at_most=False))
    page = table.table(rows)
    for part in (limit.processor(), "make bench", "fp32 123", "| a | 1 | ≤ 1.05 | yes |", "| b | 2 | none | – |"):
        assert part in page
    assert "| c | 2.5 | ≥ 3 | **no** |" in page


def test_the_reference_writes_every_token_once() -> None:
    """As many at each step as it says, none of them the mask; any block, any draws."""
    model, canvas = core.build(VOCAB, width=WIDTH, layers=1), empty(12, 3)
    for reference in (Reference(6, 12), Reference(12, 4, by_confidence=True, draws_everywhere=False)):
        left = [int((z == VOCAB).sum()) for z in reference.walk(model, canvas, 0)]
        assert left == [3 * n for n in range(12 - 12 // reference.steps, -1, -12 // reference.steps)]


def test_a_larger_vocabulary_changes_no_prediction() -> None:
    run = variations.with_network(presets.mdlm_tiny(), width=16, layers=1, heads=2, hidden=16)
    it = TextModel(DiffusionLM(run.model, run.tokenizer), run)
    torch.nn.init.normal_(it.lm.network.output.weight)  # type: ignore[union-attr]
    wide, text = models.widened(it, 1000), "One winter day, Nora"
    before, after = (
        m.lm.predict(c.z, c.time(torch.ones(1, 1)), c.context).x[0, -1].exp()
        for m in (it, wide)
        for c in [m.lm.canvas(text, new=4)]
    )
    words = len(run.tokenizer.words)  # type: ignore[attr-defined]
    assert torch.allclose(after[:words], before[:words], atol=1e-6)
    assert float(after.detach()[words:-4].sum()) < 1e-6
    assert wide.tokenizer.encode(text) == it.tokenizer.encode(text)


def test_a_contest_is_told(tmp_path: Path) -> None:
    """From a training of two steps to the rows: the reference writes one token per step, ours no more calls."""
    for name in ("mdlm_tiny", "ar_tiny"):
        run = variations.with_network(getattr(presets, name)(), width=16, layers=1, heads=2, hidden=16)
        fit(replace(variations.with_budget(run, 2), batch=2), tmp_path / name, quiet=True)
    ours, ar = (open_model(tmp_path / name) for name in ("mdlm_tiny", "ar_tiny"))
    contest = decoding.Contest("tiny", ours, ar, decoding.GOAL)
    with torch.no_grad():
        judged = decoding.Judged.of(contest, 2)
        first, *parts, beside = decoding.full(contest, judged, 1)
    assert first["theirs_tokens_per_forward"] <= 1
    assert first["nfe"] <= contest.length
    assert judged.row["ratio"] == 0.0  # neither writes anything right
    assert [row["bench"].partition(":")[0] for row in parts] == ["of it"] * 3
    assert beside["ar"]["nfe"] <= contest.length + 1


def test_a_device_gets_a_table_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--width", "64", "--layers", "1", "--length", "8", "--batches", "1", "2", "--tries", "1"]
    device_table.main(["--device", "cpu", *small])
    title, _, head, rule, *rows = capsys.readouterr().out.splitlines()
    assert "python -m bench --device cpu" in title
    assert "rows of 8 tokens" in title
    assert len({line.count("|") for line in (head, rule, *rows)}) == 1
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    names = ["training step", *2 * list(device_table.SAMPLERS)]
    assert [(name, batch) for name, batch, *_ in cells] == list(zip(names, ["2", *"111222"], strict=True))
    assert all(float(ms) > 0 and float(speed.replace(",", "")) > 0 for *_, ms, speed in cells)
    with pytest.raises(SystemExit, match="2"):
        device_table.main(["--device", "cuda:99", *small])
    assert "cuda:99" in capsys.readouterr().err
