"""The sections of the demo's page: figures, tables and curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redraft.apps.reports import charts, findings, page
from redraft.apps.reports.findings import _DemoResults, _DemoTexts, _ModelScores
from redraft.apps.reports.page import _judged_sample, _Section


def _sections(
    results: _DemoResults, texts: _DemoTexts, seconds: float, commands: tuple[page.Command, ...]
) -> list[_Section]:
    """Returns all sections, from the headline to the commands to try next."""
    return [
        _Section("", (_headline(results),)),
        _Section(
            "From noise to text",
            (page._Playback(texts.frames),),
            "Each column is a position in the text, each row a step of the sampler, from noise at the top to the story "
            "at the bottom. Words appear in any order, each drawn given all others so far. Of the generated stories, "
            "this one has the longest correct beginning.",
        ),
        _Section(
            "Evaluation",
            (_bars(results), _comparison(results)),
            "Bars show bits per character above the true distribution, with one standard error to either side. "
            f"Both models are measured on the same {findings._HELD_OUT} held-out stories. The value of the baseline is "
            "exact, that of diffusion an upper bound. In return, diffusion writes in any order and fills gaps.",
        ),
        _Section(
            "Learning",
            (_curves(results),),
            "The excess on held-out stories falls toward zero. The training losses of the two models are different "
            "quantities: masked cross-entropy over all noise levels, and the likelihood of the next token.",
        ),
        _Section(
            "The first six stories",
            (page._Samples(texts.stories),),
            "Not selected. A grammatical story has a true log-probability; in any other, the first ungrammatical word "
            "is marked.",
        ),
        _Section(
            "Filled gaps",
            (page._FilledTexts(texts.infills),),
            "Held-out stories with two holes each. The model wrote the marked words; everything else was given.",
        ),
        _Section(
            "During training",
            (_progress(results),),
            "One story, generated with the same random numbers at three times.",
        ),
        _Section(
            "Time",
            (_times(results),),
            f"Training time excludes evaluation. All evaluation and generation took {page._format_duration(seconds)}.",
        ),
        _Section("Next steps", (page._Commands(commands),)),
    ]


def _headline(results: _DemoResults) -> page._Figures:
    numbers, model = results.result(), results.diffusion.trained
    excess, error = results.diffusion.excess
    return page._Figures(
        (
            page._Figure("above the truth", f"{excess:.4f}", f"± {error:.4f} bits per character"),
            page._Figure(
                "bits per character",
                f"{numbers['bits_per_char']:.4f}",
                f"at most, on {findings._HELD_OUT} held-out stories",
            ),
            page._Figure("truth", f"{results.truth:.4f}", "bits per character on the same stories"),
            page._Figure("left to right", f"{numbers['ar_bits_per_char']:.4f}", "baseline, a quarter of the steps"),
            page._Figure("grammatical stories", f"{numbers['grammatical']:.0%}", f"of {findings._WRITTEN}"),
            page._Figure(
                "training",
                page._format_duration(model.seconds),
                f"{numbers['tokens_per_second']:,.0f} tokens per second",
            ),
        )
    )


def _bars(results: _DemoResults) -> charts._Bars:
    def bar(name: str, scores: _ModelScores) -> charts._Bar:
        value, error = scores.excess
        return charts._Bar(name, value, f"{scores.likelihood.bits_per_char:.4f} in total", error)

    return charts._Bars(
        (bar("masked diffusion", results.diffusion), bar("left to right", results.baseline)), "bits per character"
    )


def _comparison(results: _DemoResults) -> page._DataTable:
    return _side_by_side(
        results,
        ("training steps", lambda s: f"{s.trained.run.steps:,}"),
        ("first sentence correct", lambda s: f"{s.first_sentence:.0%}"),
        ("whole story correct", lambda s: f"{s.grammar.share:.0%}"),
        ("network calls per story", lambda s: f"{s.generated.nfe:.1f}"),
    )


def _times(results: _DemoResults) -> page._DataTable:
    return _side_by_side(
        results,
        ("training", lambda s: page._format_duration(s.trained.seconds)),
        ("training, tokens per second", lambda s: f"{s.trained.tokens / s.trained.seconds:,.0f}"),
        (f"generating {findings._WRITTEN} stories", lambda s: page._format_duration(s.generated.seconds)),
        ("generation, tokens per second", lambda s: f"{s.generated.tokens_per_second:,.0f}"),
    )


def _side_by_side(results: _DemoResults, *rows: tuple[str, Callable[[_ModelScores], str]]) -> page._DataTable:
    cells = tuple((name, show(results.diffusion), show(results.baseline)) for name, show in rows)
    return page._DataTable(("", "masked diffusion", "left to right"), cells)


def _curves(results: _DemoResults) -> charts._Charts:
    def curves(key: str) -> tuple[charts.Curve, ...]:
        named = (("masked diffusion", results.diffusion), ("left to right", results.baseline))
        return tuple(charts.Curve.through(name, scores.trained.curve(key)) for name, scores in named)

    unit = "bits per character above the truth"
    held_out = charts.Chart("Held-out stories", "step", unit, curves("valid_excess_bits_per_char"), y_log=True)
    loss = curves("train_loss_bits_per_token")
    training = charts.Chart("Training", "step", "loss in bits per token", loss, y_log=True)
    return charts._Charts((held_out, training))


def _progress(results: _DemoResults) -> page._Samples:
    records = [line for line in results.diffusion.trained.log if line.get("samples")]
    return page._Samples(
        tuple(
            replace(
                _judged_sample(line["samples"][0], results.diffusion.trained.run.data),
                label=f"after {line['step']} steps",
            )
            for line in records[::3][:3]
        )
    )
