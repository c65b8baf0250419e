"""Tables of the field's headline results for docs/results/claims.md.

Rows of repair.py, learning.py, adapting.py, long_texts.py, scarce.py and pos.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from results_pages.tables import Held, Row, above, bits, cell, markdown, percent, right

COMMANDS = {  # file of rows → what makes it
    "repair": "python recipes/repair.py",
    "learning": "python recipes/learning.py training",
    "writing": "python recipes/learning.py writing",
    "adapting": "python recipes/adapting.py",
    "long_texts": "python recipes/long_texts.py",
    "scarce": "python recipes/scarce.py --stories FILE --sets NAME=FILE",
    "pos": "python recipes/pos.py --e2e FOLDER",
}

COUNTS = (1, 2, 4)  # wrong words per story
REPAIRS = {
    "gidd 0.05": "GIDD, noise level 0.05",
    "gidd 0.01": "GIDD, 0.01",
    "gidd 0.1": "GIDD, 0.1",
    "udlm 0.05": "UDLM, 0.05",
    "udlm 0.01": "UDLM, 0.01",
    "udlm 0.1": "UDLM, 0.1",
    "gstar": "G-Star, its error head",
    "mdlm": "MDLM, its own doubt",
    "ar": "causal, best of 16",
}
DETECTORS = {"mdlm": "MDLM, all other words", "gidd": "GIDD", "udlm": "UDLM", "gstar": "G-Star", "ar": "causal"}
DRIFTS = {"ar": "causal", "mdlm": "MDLM", "gidd": "GIDD", "udlm": "UDLM"}
MINUTES = "1.5 min"
TRAININGS = ("preset", "qk_norm", "time", "time, heads, muon, weight", "time, warmup", "time, qk_norm")
WRITERS = {
    "unmask": "unmasking, equal parts",
    "entropy bound": "adaptive pick alone",
    "gibbs, 1 token": "adaptive pick, then Gibbs with 1 token",
    "gibbs, 2 tokens": "2 tokens",
    "gibbs, 4 tokens": "4 tokens",
    "gibbs, 4 unlikely": "4 unlikely tokens (sharpens)",
    "remdm": "ReMDM",
    "star": "star-shaped",
    "gstar": "G-Star (sharpens)",
}
ADAPTED = {
    "scratch": "from scratch",
    "naive": "causal weights, full attention at once",
    "shift": "and the shift kept",
    "whole": "and the attention opened over half of the steps",
}
LONG = {"mdlm": "MDLM, steps a window", "ssd": "SSD-LM, steps a block of 17", "ar": "causal"}
LONG_STEPS = {"mdlm": (16, 64, 256, 1000), "ssd": (8, 32, 128, 1000), "ar": (1,)}
LEARNERS = {"ar": "causal", "mdlm": "MDLM", "sedd": "SEDD"}
AMOUNTS = {"all": "all of the text", "scarce": "a fifth of it"}
CONTROLLED = {
    "ar free": "causal, free",
    "fudge": "FUDGE, 16 likeliest words",
    "look-ahead": "FUDGE with look-ahead",
    "mdlm free": "MDLM, free",
    "mdlm": "MDLM, trying 16 words",
    "diffusion_lm free": "Diffusion-LM, free",
    "diffusion_lm": "Diffusion-LM, gradients",
}
SEEDS, TWO_SEEDS = (0, 1, 2), (0, 1)


def repair_table(rows: Held) -> str:
    head = ["method", *(f"right, {n} wrong, %" for n in COUNTS), "exact, 1 wrong, %", "spoilt, 1 wrong, %", "calls"]
    lines = []
    for name, said in REPAIRS.items():
        found = [rows.get(f"{name}, {count} wrong") for count in COUNTS]
        one = (lambda row: percent(row["exact"]), lambda row: percent(row["spoilt"]), lambda row: f"{row['calls']:.0f}")
        lines.append([said, *map(right, found), *(cell(found[0], show) for show in one)])
    return markdown(head, lines)


def detect_table(rows: Held) -> str:
    head = ["the most suspect words by", *(f"found, {n} wrong, %" for n in COUNTS)]
    return markdown(
        head,
        [
            [said, *(cell(rows.get(f"detect {name}, {n} wrong"), lambda row: percent(row["found"])) for n in COUNTS)]
            for name, said in DETECTORS.items()
        ],
    )


def drift_table(rows: Held) -> str:
    head = ["the rest is right, %", "after a right half", "after a half with a wrong word"]
    return markdown(
        head,
        [
            [said, *(right(rows.get(f"drift {name}, {kind}")) for kind in ("right", "wrong"))]
            for name, said in DRIFTS.items()
        ],
    )


def training_table(rows: Held) -> str:
    lines = []
    for name in TRAININGS:
        found = {seed: rows.get(f"{name} seed {seed}, {MINUTES}") for seed in SEEDS}
        if name in TRAININGS[:2] or any(found.values()):
            shown = [right(None if row is None else row["written"]) for row in found.values()]
            lines.append([name, *shown, above(rows, f"{name} seed 0, {MINUTES}")])
    return markdown(
        ["network", *(f"right, seed {seed}, %" for seed in SEEDS), "bits/char above the truth, seed 0"], lines
    )


def writing_table(rows: Held) -> str:
    models = [f"{name} seed {seed}" for seed in SEEDS for name in ("time", "preset")]
    models = [model for model in models if any(f"; {model}, {MINUTES}" in row for row in rows)] or ["time seed 0"]
    lines = []
    for name, said in WRITERS.items():
        found = [rows.get(f"{name}; {model}, {MINUTES}") for model in models]
        entropy = cell(found[0], lambda row: f"{row['unigram_entropy']:.2f}")
        lines.append([said, *map(right, found), cell(found[0], lambda row: f"{row['nfe']:.0f}"), entropy])
    return markdown(["at most 64 calls", *(f"right, {model}, %" for model in models), "calls", "entropy, nats"], lines)


def adapting_table(rows: Held) -> str:
    lines = []
    for name, said in ADAPTED.items():
        found = [rows.get(f"{name} seed {seed}") for seed in TWO_SEEDS]
        bounds = (above(rows, f"{name} seed {seed}") for seed in TWO_SEEDS)
        stories = (right(None if row is None else row["written"]) for row in found)
        holes = (cell(row, lambda row: percent(row["holes"])) for row in found)
        lines.append([said, *bounds, *stories, *holes, cell(found[0], lambda row: f"{row['steps']:,}")])
    kinds = ("bits/char above the truth", "right at 64 calls, %", "holes right, %")
    return markdown(["start", *(f"{kind}, seed {seed}" for kind in kinds for seed in TWO_SEEDS), "steps"], lines)


def long_table(rows: Held) -> str:
    lines = [
        [
            said if name == "ar" else f"{said}: {steps:,}",
            right(row := rows.get(f"{name} {steps}")),
            cell(row, nats_per_word),
            cell(row, lambda row: f"{row['seconds_per_text']:.1f}"),
            cell(row, lambda row: f"{row['nfe']:,.0f}"),
            cell(row, lambda row: f"{row['stories']}"),
        ]
        for name, said in LONG.items()
        for steps in LONG_STEPS[name]
    ]
    return markdown(["method", "right stories, %", "nats a word", "CPU s a text", "calls a text", "stories"], lines)


def nats_per_word(row: Row) -> str:
    """A dash if no story is right, so that the grammar gives none a probability."""
    return cell(None if row["nats_per_word"] is None else row, lambda row: f"{row['nats_per_word']:.3f}")


def scarce_table(rows: Held) -> str:
    lines = []
    for size, amount in AMOUNTS.items():
        for name, said in LEARNERS.items():
            found = [rows.get(f"{name}, {size}, seed {seed}") for seed in TWO_SEEDS]
            passes = cell(found[0], lambda row: f"{row['curve'][-1][0]:.1f}")
            to_causal = bits_ratio(rows, name, size)
            lines.append([f"{said}, {amount}", *(cell(row, bits) for row in found), to_causal, passes])
    heads = (*(f"bits/char, seed {seed}" for seed in TWO_SEEDS), "of the causal model's", "passes over the text")
    return markdown(["method", *heads], lines)


def bits_ratio(rows: Held, name: str, size: str) -> str:
    """The mean over seeds that both have, over the causal model's."""
    pairs = [
        (rows[f"{name}, {size}, seed {seed}"]["bits_per_char"], rows[f"ar, {size}, seed {seed}"]["bits_per_char"])
        for seed in TWO_SEEDS
        if f"{name}, {size}, seed {seed}" in rows and f"ar, {size}, seed {seed}" in rows
    ]
    return cell({} if pairs else None, lambda _: f"{fmean(a for a, _ in pairs) / fmean(b for _, b in pairs):.3f}")


def elsewhere_table(rows: Held) -> str:
    sets = [*dict.fromkeys(name for row in rows.values() for name in row["zero_shot"])]
    lines = [
        [said, *(cell(rows.get(f"{name}, all, seed 0"), lambda row, text=text: zero_shot(row, text)) for text in sets)]
        for name, said in LEARNERS.items()
    ]
    return markdown(["bits/char of texts it has not seen", *(name.capitalize() for name in sets)], lines)


def zero_shot(row: Row, text: str) -> str:
    value, error = row["zero_shot"][text]
    return f"{value:.3f} ± {error:.3f}"


def pos_table(rows: Held) -> str:
    lines = [["people", "", "", "", cell(rows.get("people"), lambda row: f"{row['perplexity']:.0f}"), "", ""]]
    for name, said in CONTROLLED.items():
        published, row = rows.get(f"{name}, published"), rows.get(f"{name}, held out")
        hits = (cell(one, lambda one: percent(one["success"])) for one in (published, row))
        costs = (cell(row, lambda row: f"{row['nfe']:.0f}"), cell(row, lambda row: f"{row['seconds_per_text']:.1f}"))
        lines.append([said, *hits, right(row), cell(row, lambda row: f"{row['perplexity']:.0f}"), *costs])
    heads = ("tags right, published, %", "held out, %", "whole, held out, %", "perplexity", "calls", "CPU s a text")
    return markdown(["method", *heads], lines)


def pos_texts(rows: Held) -> str:
    """What each method writes for the two published targets, as a list."""
    shown = ((said, rows.get(f"{name}, published")) for name, said in CONTROLLED.items())
    return "\n".join(f"- {said}: {' / '.join(row['texts'])}" for said, row in shown if row is not None)


TABLES: Mapping[str, tuple[str, Callable[[Held], str]]] = {  # name → its file of rows, and how it is made
    "repair": ("repair", repair_table),
    "detect": ("repair", detect_table),
    "drift": ("repair", drift_table),
    "training": ("learning", training_table),
    "writing": ("writing", writing_table),
    "adapting": ("adapting", adapting_table),
    "long_texts": ("long_texts", long_table),
    "scarce": ("scarce", scarce_table),
    "elsewhere": ("scarce", elsewhere_table),
    "pos": ("pos", pos_table),
    "pos_texts": ("pos", pos_texts),
}


def tables(files: Mapping[str, Held]) -> dict[str, str]:
    """Tables by name; without any row, a table is a sentence that names the command."""
    return {
        name: make(files[file]) if files[file] else f"*No rows yet; this makes them:* `{COMMANDS[file]}`"
        for name, (file, make) in TABLES.items()
    }
