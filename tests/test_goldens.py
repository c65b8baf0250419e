"""Every output of the originals in tests/golden is compared with ours by some test, or named here with the reason."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from conftest import GOLDEN, TESTS
from safetensors import safe_open

FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/io.safetensors"))
INPUTS = {
    "x0 x1 xt z_t z_t_masked xt_complementary input_ids labels labels_prefix_ignored cond t t_T1000 bd3lm_t bd3lm_xt",
    "masked_indices bd3lm_masked_indices p_mask attention_mask attention_mask_2 attention_mask_leftpad",
    "attention_mask_rightpad position_ids_attention_mask prompt prompt_0 prompt_1 prompt_2 prompt_whole_blocks",
    "infill_canvas bd3lm_block_causal_input block_causal_input sample_mode_input sched_t sigma dsigma insertion_time",
    "unmasking_time xt_length mask_indices denoiser_logits_BKL log_alpha",
}
NAMES = frozenset(name for line in INPUTS for name in line.split())
NOT_COMPARED = {
    (
        "flexmdm_.*",
        "st",
    ): "which tokens of x1 stand where in xt: bookkeeping, implied by xt and the targets",
    (".*", ".*block_diff_mask_2L"): "who sees whom in training, compared through the logits that follow from it",
}


def outputs(folder: str) -> list[str]:
    with safe_open(GOLDEN / folder / "io.safetensors", "pt") as file:
        tensors = [name for name in file.keys() if name not in NAMES]  # noqa: SIM118
    scalars = json.loads((GOLDEN / folder / "expected.json").read_text()).get("scalars", {})
    return sorted([*tensors, *scalars])


@cache
def sources() -> dict[Path, ast.Module]:
    files = (file for file in sorted(TESTS.rglob("test_*.py")) if file != Path(__file__))
    return {file: ast.parse(file.read_text("utf-8")) for file in files}


def patterns(tree: ast.AST) -> Iterator[str]:
    """Regular expressions of the texts in a file: constants, f-strings with any values, and beginnings asked for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.escape(node.value)
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else None for p in node.values]
            if sum(len(part) for part in parts if part) >= 3:
                yield "".join(".*" if part is None else re.escape(part) for part in parts)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
            begins = (arg.value for arg in node.args if isinstance(arg, ast.Constant))
            yield from (f"{re.escape(text)}.*" for text in begins if isinstance(text, str) and len(text) > 2)


@cache
def known(folder: str) -> re.Pattern[str]:
    """All names that files which speak of a folder mention."""
    speaking = [tree for tree in sources().values() if any(re.fullmatch(p, folder) for p in patterns(tree))]
    return re.compile("|".join(sorted({p for tree in speaking for p in patterns(tree)})))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_output_has_its_test(folder: str) -> None:
    left = [name for name in outputs(folder) if not known(folder).fullmatch(name)]
    excused = [n for n in left if any(re.fullmatch(f, folder) and re.fullmatch(p, n) for f, p in NOT_COMPARED)]
    assert sorted(set(left) - set(excused)) == []


def test_a_new_output_would_be_noticed() -> None:
    assert len(FOLDERS) == 23
    assert known("llada").fullmatch("gen_low_conf_steps16_len16_block8")
    assert not known("llada").fullmatch("generated_by_a_new_sampler")
    assert not known("mdlm").fullmatch("nll_of_tomorrow")
