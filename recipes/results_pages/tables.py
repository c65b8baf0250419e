"""The rows of recipes/results/*.jsonl as the Markdown tables of the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rows import Rows

from redraft.evaluation import summaries

Row: TypeAlias = Mapping[str, Any]
Held: TypeAlias = Mapping[str, Row]  # by name

MISSING = "–"
METHODS = {
    "ar_tiny": "autoregressive",
    "bd3_tiny": "block diffusion, blocks of 8",
    "mdlm_tiny": "MDLM",
    "sedd_tiny": "SEDD, mask noise",
    "sedd_long": "SEDD, mask noise, for 20 minutes",
    "d3pm_tiny": "D3PM, absorbing",
    "d3pm_long": "D3PM, absorbing, for 20 minutes",
    "flex_tiny": "FlexMDM",
    "flex_sooner": "FlexMDM, words sooner",
    "flex_together": "FlexMDM, masks among words",
    "gidd_tiny": "GIDD, p_u = 0.2",
    "udlm_tiny": "UDLM",
    "multinomial_tiny": "multinomial",
    "multinomial_long": "multinomial, for 20 minutes",
    "sedd_uniform_tiny": "SEDD, uniform noise",
    "sedd_uniform_geometric": "SEDD, its geometric schedule",
}
ABLATIONS = {
    "mdlm_tiny": "the preset: unweighted cross-entropy, no time",
    "mdlm_time": "the network sees time",
    "mdlm_bound": "trained on the bound, continuous time",
    "mdlm_bound_1000": "trained on the bound, T = 1000",
    "mdlm_no_carry_over": "the same without carry-over: D3PM's last step",
    "mdlm_no_zero_mask": "and without zero-masking",
}
GIDD = {"gidd_0": "0", "gidd_10": "0.1", "gidd_20": "0.2"}
REMASKING = {
    "mdlm": "MDLM without remasking",
    "remdm": "ReMDM, cap 0.05",
    "star": "star, 0.05 ≤ t ≤ 0.55",
    "star_exact": "star with exact counts",
    "gstar": "G-Star",
}


SYSTEMS = {
    "diffusion_lm": "Diffusion-LM",
    "diffuseq": "DiffuSeq, attributes → story",
    "diffuseq summary": "DiffuSeq, story → summary",
    "genie": "GENIE, attributes → story",
    "genie summary": "GENIE, story → summary",
    "ssd": "SSD-LM, blocks of 17",
    "tencdm": "TEncDM",
    "ld4tg": "LD4TG",
    "planner": "PLANNER",
    "cosmos": "COSMOS",
}
VARIANTS = {
    "diffusion_lm no kinds": "Diffusion-LM, random initial vectors",
    "diffuseq joint": "DiffuSeq, source also noised",
    "genie without cross attention": "GENIE without cross-attention",
    "ssd 34": "SSD-LM, blocks of 34",
    "ssd 68": "SSD-LM, one block",
    "tencdm tan": "TEncDM, tan-7",
    "tencdm no hint": "TEncDM without self-conditioning",
    "ld4tg half": "LD4TG, half as many latents",
    "ld4tg class": "LD4TG given the mood (class)",
    "planner strict": "PLANNER, a hundred times the KL, wrong words",
    "cosmos strong": "COSMOS, strong smoothing, tan-3",
    "cosmos rough": "COSMOS without smoothing, tan-3",
}


PATIENT = {
    "diffusion_lm x": "Diffusion-LM that predicts x (squared error)",
    "diffuseq": "DiffuSeq, attributes → story",
    "genie": "GENIE, attributes → story",
    "ssd": "SSD-LM, blocks of 17",
    "ld4tg": "LD4TG",
    "planner": "PLANNER",
    "cosmos": "COSMOS",
}
SAMPLERS = {
    "ancestral 64": "the reverse process, 64 steps (`Ancestral`)",
    "ancestral 256": "the same, 256 steps",
    "ddim 64": "without noise, 64 steps (`Ddim`)",
    "renoise 64": "draw words and noise them again, 64 steps (`Renoise`)",
}
CODECS = ("tencdm", "ld4tg", "planner", "cosmos", "ld4tg half", "planner strict", "cosmos strong", "cosmos rough")
REAL = {
    "mdlm": "MDLM, E2E",
    "diffuseq": "DiffuSeq, E2E",
    "genie": "GENIE, E2E",
    "ld4tg": "LD4TG, E2E",
    "tencdm": "TEncDM with MiniLM, prose",
}


REUSE = (16, 64, 256, 1000, 5000)  # steps
STRIDES = {
    "mdlm 64": "MDLM by strides of 128, 64 steps a window",
    "mdlm 256": "the same, 256 steps",
    "ssd 64": "SSD-LM, blocks of 32, 8 steps each",
    "ssd 256": "the same, 32 steps each",
    "ar 256": "autoregressive: the judge itself",
}
SEEDS = (16, 64, 256)  # steps of a whole text, where several seeds are compared
ELSEWHERE = {"own": "WikiText-2 (in-domain)", "ptb": "PTB", "tinystories": "TinyStories", "shakespeare": "Shakespeare"}
LETTERS = ("ar_tiny", "mdlm_tiny", "udlm_tiny", "multinomial_tiny")


def tables(results: Path) -> dict[str, str]:
    """What is measured so far, by the name of the table."""
    methods, ablations, remask = (Rows(results / f"{name}.jsonl").read() for name in ("methods", "ablations", "remask"))
    systems, variants, codecs = (
        Rows(results / f"continuous_{name}.jsonl").read() for name in ("systems", "ablations", "codecs")
    )
    patient, samplers = (Rows(results / f"continuous_{name}.jsonl").read() for name in ("patient", "samplers"))
    real = Rows(results / "real.jsonl").read()
    return {
        "seeds": seeds_table(Rows(results / "compare.jsonl").read()),
        "methods": methods_table(methods),
        "ablations": ablations_table({**methods, **ablations}),
        "gidd": gidd_table(ablations),
        "remask": remask_table(remask),
        "reuse": reuse_table(Rows(results / "mdlm_reuse.jsonl").read()),
        "strides": strides_table(Rows(results / "mdlm_strides.jsonl").read()),
        "letters": letters_table(Rows(results / "letters.jsonl").read()),
        "elsewhere": elsewhere_table(Rows(results / "letters_sets.jsonl").read()),
        "systems": systems_table("system", SYSTEMS, systems),
        "variants": systems_table("variant", VARIANTS, variants),
        "patient": patient_table(patient),
        "samplers": samplers_table(samplers),
        "codecs": codecs_table(codecs),
        "real": real_table(real),
    }


def seeds_table(held: Held) -> str:
    """Rows of `redraft compare`: means over seeds, with the standard error between them."""
    methods = summaries(list(held.values()))
    head = ["method", "bits/char above the truth", *(f"right at {SEEDS[0]} steps, %", *map(str, SEEDS[1:]))]
    rows = (
        [
            f"{METHODS[each['method']]} (`{each['method']}`)",
            spread(each["bits"], 1, 4),
            *(spread(written_over_seeds(each, steps)["share"], 100, 0) for steps in SEEDS),
            f"{each['steps'][0]:,}",
        ]
        for each in methods
    )
    return markdown([*head, "training steps"], rows)


def methods_table(held: Held) -> str:
    head = ["method", "bits/char above the truth", "right at 16 steps, %", "64", "256", "CPU s per text at 64"]
    rows = (
        [
            f"{label} (`{name}`)" if name.endswith("_tiny") else label,
            above(held, name),
            *(right(written(held, name, steps)) for steps in ("16", "64", "256")),
            cost(written(held, name, "64")),
            cell(held.get(name), trained),
        ]
        for name, label in METHODS.items()
    )
    return markdown([*head, "training steps"], rows)


def ablations_table(held: Held) -> str:
    rows = (
        [label, above(held, name), right(written(held, name, "64")), cell(held.get(name), trained)]
        for name, label in ABLATIONS.items()
    )
    return markdown(["MDLM", "bits/char above the truth", "right at 64 steps, %", "training steps"], rows)


def gidd_table(held: Held) -> str:
    rows = (
        [label, above(held, name), *(right(written(held, name, n)) for n in ("64", "64+32"))]
        for name, label in GIDD.items()
    )
    return markdown(["GIDD, p_u", "bits/char above the truth", "right at 64 steps, %", "and 32 corrections"], rows)


def remask_table(held: Held) -> str:
    rows = (
        [label, *(right(held.get(f"{name} {n}")) for n in (8, 16, 32, 64)), cost(held.get(f"{name} 64"))]
        for name, label in REMASKING.items()
    )
    return markdown(["sampler", "8 steps, %", "16", "32", "64", "CPU s per text at 64"], rows)


def reuse_table(held: Held) -> str:
    kinds = ("no reuse", "reuse")
    rows = (
        [
            f"{steps:,}",
            *(cell(held.get(f"{kind} {steps}"), lambda row: f"{row['nfe']:.1f}") for kind in kinds),
            *(cost(held.get(f"{kind} {steps}")) for kind in kinds),
            right(held.get(f"reuse {steps}")),
        ]
        for steps in REUSE
    )
    head = ["steps", "network calls without reuse", "with", "CPU s per text without", "with", "right, %"]
    return markdown(head, rows)


def strides_table(held: Held) -> str:
    shown = (
        lambda row: f"{row['generative_perplexity']:.2f}",
        lambda row: f"{row['entropy_within']:.2f}",
        lambda row: f"{row['nfe']:.0f}",
        lambda row: f"{row['seconds_per_sample']:.2f}",
    )
    rows = ([label, *(cell(held.get(name), show) for show in shown)] for name, label in STRIDES.items())
    head = ["2048 letters by", "judge's perplexity per letter", "entropy of words, nats", "calls", "CPU s per text"]
    return markdown(head, rows)


def letters_table(held: Held) -> str:
    def known(row: Row, name: str) -> str:
        return f"{row[name]:.3f} ± {row[f'{name}_stderr']:.3f}" if name in row else MISSING

    columns = ("exact", "continuous", "chain_1000", "chain_4000")
    rows = (
        [
            METHODS[name],
            *(cell(held.get(name), lambda row, column=column: known(row, column)) for column in columns),
            cell(held.get(name), trained),
        ]
        for name in LETTERS
    )
    return markdown(["bits per letter", "exact", "continuous time", "T = 1000", "T = 4000", "training steps"], rows)


def elsewhere_table(held: Held) -> str:
    def shown(row: Row, of: str) -> str:
        bits = row["sets"][of]
        return f"{bits['bits_per_char']:.3f} ± {bits['bits_per_char_stderr']:.3f} ({bits['word_perplexity']:,.0f})"

    rows = (
        [METHODS[name], *(cell(held.get(name), lambda row, of=of: shown(row, of)) for of in ELSEWHERE)]
        for name in LETTERS
    )
    return markdown(["bits per letter (perplexity per word)", *ELSEWHERE.values()], rows)


def systems_table(title: str, labels: Mapping[str, str], held: Held) -> str:
    shown = (
        lambda row: percent(row["reconstruction"]),
        lambda row: f"{row['bits_per_token']:.2f}",
        lambda row: f"{row['bits_per_char']:.3f}",
        lambda row: f"{100 * row['share']:.0f} ± {100 * row['share_stderr']:.0f}",
        lambda row: f"{100 * row['attributes']:.0f}" if "attributes" in row else MISSING,
        lambda row: f"{row['seconds_per_sample']:.3f}",
        trained,
    )
    head = ["reconstruction, %", "bits/token", "bits/char", "right, %", "attributes, %", "CPU s per text"]
    rows = ([label, *(cell(held.get(name), show) for show in shown)] for name, label in labels.items())
    return markdown([title, *head, "training steps"], rows)


def patient_table(held: Held) -> str:
    """As the table of systems, with the minutes of the codec and of the diffusion."""
    shown = (
        lambda row: " + ".join(f"{stage['minutes']:.0f}" for stage in row["stages"]),
        lambda row: percent(row["reconstruction"]),
        lambda row: f"{row['bits_per_char']:.3f}",
        right,
        lambda row: f"{100 * row['attributes']:.0f}" if "attributes" in row else MISSING,
        lambda row: percent(row["different"]),
        trained,
    )
    head = ["minutes", "reconstruction, %", "bits/char", "right, %", "attributes, %", "different, %", "training steps"]
    rows = ([label, *(cell(held.get(name), show) for show in shown)] for name, label in PATIENT.items())
    return markdown(["system", *head], rows)


def samplers_table(held: Held) -> str:
    rows = ([label, right(held.get(name)), cost(held.get(name))] for name, label in SAMPLERS.items())
    return markdown(["sampler of Diffusion-LM", "right, %", "CPU s per text"], rows)


def codecs_table(held: Held) -> str:
    """The systems that have latents, and their variants with other ones."""
    shown = (
        lambda row: f"{row['aubleu']:.3f}",
        *(lambda row, sigma=sigma: percent(row["noisy"][sigma]) for sigma in ("0.25", "0.5", "1.0")),
        lambda row: percent(row["halfway"]),
        lambda row: percent(row["different"]),
        lambda row: MISSING if row["guessing"] is None else percent(row["guessing"]),
    )
    sigmas = ["tokens right at σ = 0.25, %", "0.5", "1"]
    head = ["AuBLEU", *sigmas, "midpoints right, %", "different, %", "encoder guesses, %"]
    names = {name: label for name, label in (SYSTEMS | VARIANTS).items() if name in CODECS}
    rows = ([label, *(cell(held.get(name), show) for show in shown)] for name, label in names.items())
    return markdown(["latents of", *head], rows)


def real_table(held: Held) -> str:
    shown = (
        lambda row: percent(row["reconstruction"]) if "reconstruction" in row else MISSING,
        lambda row: f"{row['bits_per_token']:.2f}",
        lambda row: f"{row['bits_per_char']:.3f}",
        lambda row: f"{percent(row['slots'])} ({percent(row['slots_people'])})" if "slots" in row else MISSING,
        lambda row: f"{row['bleu']:.2f} ({row['bleu_people']:.2f})" if "bleu_people" in row else MISSING,
        lambda row: f"{sum(stage['minutes'] for stage in row.get('stages', [row])):.0f}",
        trained,
    )
    head = [
        "reconstruction, %",
        "bits/token",
        "bits/char",
        "slots, % (human)",
        "BLEU (human)",
        "minutes",
        "steps",
    ]
    rows = ([label, *(cell(held.get(name), show) for show in shown)] for name, label in REAL.items())
    return markdown(["system", *head], rows)


# --- cells ---


def cell(row: Row | None, show: Callable[[Row], str]) -> str:
    return MISSING if row is None else show(row)


def written(held: Held, name: str, steps: str) -> Row | None:
    """What a model wrote in this number of steps."""
    return held[name]["steps_written"].get(steps) if name in held else None


def above(held: Held, name: str) -> str:
    return cell(held.get(name), lambda row: f"{row['excess']:.4f} ± {row['excess_stderr']:.4f}")


def right(row: Row | None, key: str = "share") -> str:
    """A share in per cent, with its error."""
    return cell(row, lambda row: f"{100 * row[key]:.0f} ± {100 * row[f'{key}_stderr']:.0f}")


def spread(figure: Mapping[str, Any], times: float, digits: int) -> str:
    """A mean over seeds; a single seed has no spread."""
    mean, between = figure["mean"], figure["between"]
    error = "" if between is None else f" ± {times * between:.{digits}f}"
    return f"{times * mean:.{digits}f}{error}"


def written_over_seeds(row: Row, steps: int) -> Mapping[str, Any]:
    """The preset's own sampler stands for its own number of steps, and for all if there is nothing to choose."""
    return row["written"].get(str(steps), row["written"]["own"])


def cost(row: Row | None) -> str:
    return cell(row, lambda row: f"{row['seconds_per_sample']:.3f}")


def bits(row: Row) -> str:
    return f"{row['bits_per_char']:.3f} ± {row['bits_per_char_stderr']:.3f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def trained(row: Row) -> str:
    return f"{row['steps']:,}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Words to the left, figures to the right."""
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
