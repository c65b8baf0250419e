"""The demo's page: its sections, their figures, tables and curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redraft.apps.reports import charts, findings, page
from redraft.apps.reports.findings import _DemoResults, _DemoTexts, _ModelScores
from redraft.apps.reports.page import _Section
from redraft.apps.reports.samples import _judged_sample


def _sections(
    found: _DemoResults, pieces: _DemoTexts, seconds: float, commands: tuple[page.Command, ...]
) -> list[_Section]:
    """All sections, from the headline to the commands to try next."""
    return [
        _Section("", (_headline(found),)),
        _Section(
            "From noise to text",
            (page._Playback(pieces.frames),),
            "Each column is a place in the text, each row a step of the sampler, from noise at the top to the story at "
            "the bottom. Words appear in any order, each chosen with all others in view. Of the stories that the model "
            "wrote, this one stays right longest.",
        ),
        _Section(
            "Against the truth",
            (_bars(found), _comparison(found)),
            "A bar is what is still to be learnt: bits per character above the truth, with one standard error to both "
            f"sides. Both models read the same {findings._HELD_OUT} unseen stories. The figure of the baseline is "
            "exact, that of diffusion an upper bound. In return diffusion writes in any order and fills gaps.",
        ),
        _Section(
            "Learning",
            (_curves(found),),
            "How far unseen stories are above the truth falls towards zero. The training losses of the two models are "
            "different quantities: masked cross-entropy over all noise levels, and the likelihood of the next token.",
        ),
        _Section(
            "The first six stories it wrote",
            (page._Samples(pieces.stories),),
            "Not chosen. A story that the grammar can tell has a true log-probability; in any other, the first word "
            "that cannot stand there is marked.",
        ),
        _Section(
            "Gaps filled",
            (page._FilledTexts(pieces.infills),),
            "Stories that it has not seen, with two holes each; what it wrote is marked, all else was given.",
        ),
        _Section(
            "While it learnt", (_progress(found),), "One story, written with the same random numbers at three moments."
        ),
        _Section(
            "Time",
            (_times(found),),
            "Training without the measuring between steps. "
            f"All measuring and writing took {page._format_duration(seconds)}.",
        ),
        _Section("Go on", (page._Commands(commands),)),
    ]


def _headline(found: _DemoResults) -> page._Figures:
    r, model = found.result(), found.ours.trained
    over, error = found.ours.excess
    return page._Figures(
        (
            page._Figure("above the truth", f"{over:.4f}", f"± {error:.4f} bits per character"),
            page._Figure(
                "bits per character", f"{r['bits_per_char']:.4f}", f"at most, on {findings._HELD_OUT} unseen stories"
            ),
            page._Figure("the truth", f"{found.truth:.4f}", "bits per character of the same stories"),
            page._Figure("left to right", f"{r['ar_bits_per_char']:.4f}", "baseline, a quarter of the steps"),
            page._Figure("stories right", f"{r['grammatical']:.0%}", f"of {findings._WRITTEN}, every word of them"),
            page._Figure(
                "training", page._format_duration(model.seconds), f"{r['tokens_per_second']:,.0f} tokens a second"
            ),
        )
    )


def _bars(found: _DemoResults) -> charts._Bars:
    def bar(name: str, scores: _ModelScores) -> charts._Bar:
        value, error = scores.excess
        return charts._Bar(name, value, f"{scores.likelihood.bits_per_char:.4f} in all", error)

    return charts._Bars(
        (bar("masked diffusion", found.ours), bar("left to right", found.baseline)), "bits per character"
    )


def _comparison(found: _DemoResults) -> page._DataTable:
    return _side_by_side(
        found,
        ("steps of training", lambda s: f"{s.trained.run.steps:,}"),
        ("first sentence right", lambda s: f"{s.first_sentence:.0%}"),
        ("whole story right", lambda s: f"{s.grammar.share:.0%}"),
        ("network calls a story", lambda s: f"{s.generated.nfe:.1f}"),
    )


def _times(found: _DemoResults) -> page._DataTable:
    return _side_by_side(
        found,
        ("training", lambda s: page._format_duration(s.trained.seconds)),
        ("training, tokens a second", lambda s: f"{s.trained.tokens / s.trained.seconds:,.0f}"),
        (f"writing {findings._WRITTEN} stories", lambda s: page._format_duration(s.generated.seconds)),
        ("writing, tokens a second", lambda s: f"{s.generated.tokens_per_second:,.0f}"),
    )


def _side_by_side(found: _DemoResults, *rows: tuple[str, Callable[[_ModelScores], str]]) -> page._DataTable:
    cells = tuple((name, tell(found.ours), tell(found.baseline)) for name, tell in rows)
    return page._DataTable(("", "masked diffusion", "left to right"), cells)


def _curves(found: _DemoResults) -> charts._Charts:
    def curves(key: str) -> tuple[charts._Curve, ...]:
        named = (("masked diffusion", found.ours), ("left to right", found.baseline))
        return tuple(charts._Curve(name, scores.trained.curve(key)) for name, scores in named)

    above = "bits per character above the truth"
    unseen = charts._Chart("Unseen stories", "step", above, curves("valid_excess_bits_per_char"))
    training = charts._Chart("Training", "step", "loss in bits per token", curves("train_loss_bits_per_token"))
    return charts._Charts((unseen, training))


def _progress(found: _DemoResults) -> page._Samples:
    moments = [line for line in found.ours.trained.log if line.get("samples")]
    return page._Samples(
        tuple(
            replace(
                _judged_sample(line["samples"][0], found.ours.trained.run.data), label=f"after {line['step']} steps"
            )
            for line in moments[::3][:3]
        )
    )
