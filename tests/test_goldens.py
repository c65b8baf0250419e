"""Every output of the originals in tests/golden is compared with ours by some test, or named here with the reason."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

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


class Names:
    """Names that a file mentions: those in its texts as they are, f-strings with any values, beginnings asked for."""

    def __init__(self, tree: ast.AST) -> None:
        self.exact, patterns = set[str](), set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.exact.add(node.value)
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else None for p in node.values]
                if sum(len(part) for part in parts if part) >= 3:
                    patterns.add("".join(".*" if part is None else re.escape(part) for part in parts))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "startswith":
                begins = (arg.value for arg in node.args if isinstance(arg, ast.Constant))
                patterns.update(f"{re.escape(text)}.*" for text in begins if isinstance(text, str) and len(text) > 2)
        self.pattern = re.compile("|".join(sorted(patterns)) or r"(?!)")

    def __contains__(self, name: str) -> bool:
        return name in self.exact or self.pattern.fullmatch(name) is not None


@cache
def sources() -> list[Names]:
    files = (file for file in sorted(TESTS.rglob("test_*.py")) if file != Path(__file__))
    return [Names(ast.parse(file.read_text("utf-8"))) for file in files]


def known(folder: str, name: str) -> bool:
    """Whether a file that speaks of the folder mentions the name."""
    return any(folder in names and name in names for names in sources())


def test_every_output_has_its_test() -> None:
    left = [(folder, name) for folder in FOLDERS for name in outputs(folder) if not known(folder, name)]
    assert [
        (folder, name)
        for folder, name in left
        if not any(re.fullmatch(f, folder) and re.fullmatch(n, name) for f, n in NOT_COMPARED)
    ] == []


def test_a_new_output_would_be_noticed() -> None:
    assert len(FOLDERS) == 23
    assert known("llada", "gen_low_conf_steps16_len16_block8")
    assert not known("llada", "generated_by_a_new_sampler")
    assert not known("mdlm", "nll_of_tomorrow")
