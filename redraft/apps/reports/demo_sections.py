"""The demo's page: its sections, their figures, tables and curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redraft.apps.reports import charts, findings, page
from redraft.apps.reports.findings import DemoResults, DemoTexts, ModelScores
from redraft.apps.reports.page import Section
from redraft.apps.reports.samples import judged_sample


def sections(
    found: DemoResults, pieces: DemoTexts, seconds: float, commands: tuple[page.Command, ...]
) -> list[Section]:
    """All sections, from the headline to the commands to try next."""
    return [
        Section("", (_headline(found),)),
        Section(
            "From noise to text",
            (page.Playback(pieces.frames),),
            "Each column is a place in the text, each row a step of the sampler, from noise at the top to the story at "
            "the bottom. Words appear in any order, each chosen with all others in view. Of the stories that the model "
            "wrote, this one stays right longest.",
        ),
        Section(
            "Against the truth",
            (_bars(found), _comparison(found)),
            "A bar is what is still to be learnt: bits per character above the truth, with one standard error to both "
            f"sides. Both models read the same {findings.HELD_OUT} unseen stories. The figure of the baseline is "
            "exact, that of diffusion an upper bound. In return diffusion writes in any order and fills gaps.",
        ),
        Section(
            "Learning",
            (_curves(found),),
            "How far unseen stories are above the truth falls towards zero. The training losses of the two models are "
            "different quantities: masked cross-entropy over all noise levels, and the likelihood of the next token.",
        ),
        Section(
            "The first six stories it wrote",
            (page.Samples(pieces.stories),),
            "Not chosen. A story that the grammar can tell has a true log-probability; in any other, the first word "
            "that cannot stand there is marked.",
        ),
        Section(
            "Gaps filled",
            (page.FilledTexts(pieces.infills),),
            "Stories that it has not seen, with two holes each; what it wrote is marked, all else was given.",
        ),
        Section(
            "While it learnt", (_progress(found),), "One story, written with the same random numbers at three moments."
        ),
        Section(
            "Time",
            (_times(found),),
            "Training without the measuring between steps. "
            f"All measuring and writing took {page.format_duration(seconds)}.",
        ),
        Section("Go on", (page.Commands(commands),)),
    ]


def _headline(found: DemoResults) -> page.Figures:
    r, model = found.result(), found.ours.trained
    over, error = found.ours.excess
    return page.Figures(
        (
            page.Figure("above the truth", f"{over:.4f}", f"± {error:.4f} bits per character"),
            page.Figure(
                "bits per character", f"{r['bits_per_char']:.4f}", f"at most, on {findings.HELD_OUT} unseen stories"
            ),
            page.Figure("the truth", f"{found.truth:.4f}", "bits per character of the same stories"),
            page.Figure("left to right", f"{r['ar_bits_per_char']:.4f}", "baseline, a quarter of the steps"),
            page.Figure("stories right", f"{r['grammatical']:.0%}", f"of {findings.WRITTEN}, every word of them"),
            page.Figure(
                "training", page.format_duration(model.seconds), f"{r['tokens_per_second']:,.0f} tokens a second"
            ),
        )
    )


def _bars(found: DemoResults) -> charts.Bars:
    def bar(name: str, scores: ModelScores) -> charts.Bar:
        value, error = scores.excess
        return charts.Bar(name, value, f"{scores.likelihood.bits_per_char:.4f} in all", error)

    return charts.Bars(
        (bar("masked diffusion", found.ours), bar("left to right", found.baseline)), "bits per character"
    )


def _comparison(found: DemoResults) -> page.DataTable:
    return _side_by_side(
        found,
        ("steps of training", lambda s: f"{s.trained.run.steps:,}"),
        ("first sentence right", lambda s: f"{s.first_sentence:.0%}"),
        ("whole story right", lambda s: f"{s.grammar.share:.0%}"),
        ("network calls a story", lambda s: f"{s.generated.nfe:.1f}"),
    )


def _times(found: DemoResults) -> page.DataTable:
    return _side_by_side(
        found,
        ("training", lambda s: page.format_duration(s.trained.seconds)),
        ("training, tokens a second", lambda s: f"{s.trained.tokens / s.trained.seconds:,.0f}"),
        (f"writing {findings.WRITTEN} stories", lambda s: page.format_duration(s.generated.seconds)),
        ("writing, tokens a second", lambda s: f"{s.generated.tokens_per_second:,.0f}"),
    )


def _side_by_side(found: DemoResults, *rows: tuple[str, Callable[[ModelScores], str]]) -> page.DataTable:
    cells = tuple((name, tell(found.ours), tell(found.baseline)) for name, tell in rows)
    return page.DataTable(("", "masked diffusion", "left to right"), cells)


def _curves(found: DemoResults) -> charts.Charts:
    def curves(key: str) -> tuple[charts.Curve, ...]:
        named = (("masked diffusion", found.ours), ("left to right", found.baseline))
        return tuple(charts.Curve(name, scores.trained.curve(key)) for name, scores in named)

    above = "bits per character above the truth"
    unseen = charts.Chart("Unseen stories", "step", above, curves("valid_excess_bits_per_char"))
    training = charts.Chart("Training", "step", "loss in bits per token", curves("train_loss_bits_per_token"))
    return charts.Charts((unseen, training))


def _progress(found: DemoResults) -> page.Samples:
    moments = [line for line in found.ours.trained.log if line.get("samples")]
    return page.Samples(
        tuple(
            replace(judged_sample(line["samples"][0], found.ours.trained.run.data), label=f"after {line['step']} steps")
            for line in moments[::3][:3]
        )
    )
