"""Texts that are out of scope: how well they are told from others, and what it is good for.

    python benchmarks/scope.py --models DIR --data DIR --cache DIR [--seeds 0,1,2] [--only out-of-scope,mixture,...]

DIR of --models holds the models of benchmarks/backbones.py, DIR of --data the files of the tasks. What the models say
of the texts is kept in --cache: a stopped run goes on. Numbers are means over seeds; an interval resamples the test
texts, the same for both scores that are compared and for all seeds.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from evidence import Bench, Part, Setting
from harness import change, head, line, only, parser_of_models, title
from uatlite.lab.evaluate.measures import measure
from uatlite.lab.evaluate.scope import scope_of
from uatlite.metrics.accuracy import DETECTION, auroc
from uatlite.metrics.intervals import Resampling
from uatlite.text.tasks import load
from uatlite.trust.scope import chance_in_scope
from uatlite.values import Dataset

REFERENCE = 6000
"""Unlabelled training texts that fit the scope."""
FEW = 500
"""Calibration rows where there are few and no reference texts."""
OTHERS = 1000
"""At most so many texts of another task or domain."""
FORMS = {
    "few": f"scope by {FEW} calibration rows",
    "calibration": "scope by all calibration rows",
    "reference": f"scope by {REFERENCE:,} reference texts",
}
NAMES = {"clinc150": "CLINC150, its out-of-scope questions", "sst2": "SST-2, CLINC150's questions"}


class Sampled(Part):
    """At most so many rows of a split, as `limit` draws them, whatever their labels."""

    def load(self, data: Path | None, *, out_of_scope: bool = False) -> Dataset:
        return load(self.task, self.splits[0], data, limit=self.rows)


class Reference(Sampled):
    """Those of them that are in scope."""

    def load(self, data: Path | None, *, out_of_scope: bool = False) -> Dataset:
        return super().load(data).in_scope()


def setting(task: str, test: str, outside: Part, shift: str | None = None) -> Setting:
    splits = ("calibration", "test") if task == "sst2" else ("calibration",)  # the original sentences of SST-2 test it
    shifted = None if shift is None else Sampled(shift, ("test",), OTHERS)
    return Setting(
        task, Part(task, splits), Part(task, (test,)), shifted, outside, Reference(task, ("train",), REFERENCE)
    )


QUESTIONS = Sampled("clinc150", ("test",), OTHERS)
SETTINGS = {
    "clinc150": setting("clinc150", "test", Part("clinc150", ("test",))),
    "sst2": setting("sst2", "test-original", QUESTIONS, "imdb"),
    "mnli": setting("mnli", "test", QUESTIONS, "snli"),
}


class Form(Bench):
    """The runs whose scope is fitted in one way."""

    def __init__(self, options: Namespace, form: str) -> None:
        rows = FEW if form == "few" else None
        super().__init__(
            options,
            {name: replace(one, calibration=replace(one.calibration, rows=rows)) for name, one in SETTINGS.items()},
        )
        self.by_reference = form == "reference"

    def reference(self, model: object) -> str | None:
        return super().reference(model) if self.by_reference else None

    def p_values(self, task: str, which: str) -> list[np.ndarray]:
        """Of the texts of a set to be in scope, by seed."""
        jobs = self.runs.jobs(self.cell(task, "base", "nll", which))
        passes = [self.runs.predictions(job).passes for job in jobs]
        scopes = [scope_of(job, self.runs)[0] for job in jobs]
        return [s.p_values(p.representations, p.mean_logits) for s, p in zip(scopes, passes, strict=True)]


Benches = dict[str, Form]


def out_of_scope_table(benches: Benches) -> None:
    for name in filter(NAMES.get, benches["few"].settings):
        title(NAMES[name])
        head("score", "AUROC", "AUPR", "FPR at 95 %", "false alarms at 1 %", "found")
        for form, bench in benches.items():
            cells = [bench.cell(name, "base", f"{kind}-{one}") for kind in ("oos", "scope") for one in DETECTION]
            found = measure(cells, bench.runs, Resampling(1))
            scores = [f"{found[cell].mean:.4f}" for cell in cells]
            if form == "few":
                line("maximum probability", *scores[: len(DETECTION)], "nan", "nan")
            sets = (bench.p_values(name, which) for which in ("test", "outside"))
            flagged = [np.mean([(p <= 0.01).mean() for p in of_seeds]) for of_seeds in sets]
            line(FORMS[form], *scores[len(DETECTION) :], *(f"{share:.4f}" for share in flagged))


def mixture_table(benches: Benches) -> None:
    title("AURC × 100, every answer to a text out of scope an error; scope by reference texts")
    columns = ["maximum probability", "confidence", "confidence × chance in scope", "less the first", "the second"]
    head("texts", *columns)
    bench = benches["reference"]
    for name in filter(NAMES.get, bench.settings):
        for rows, told in (("inside", f"{name}, in scope"), ("mixture", f"{NAMES[name]}, mixed in")):
            contenders = (("base", "aurc"), ("base+TS", "aurc"), ("base+TS", "aurc+scope"))
            cells = [bench.cell(name, contender, f"{rows}-{area}") for contender, area in contenders]
            areas = measure(cells, bench.runs, Resampling())
            *others, both = (areas[cell] for cell in cells)
            shown = [f"{100 * area.mean:.3f}" for area in (*others, both)]
            for other in others:
                gap = both.minus(other).interval_or_point()
                shown.append(f"{change(gap, digits=3, by=100)}, {gap.point / other.mean:+.1%}")
            line(told, *shown)


SHIFTS = (
    ("SST-2", "sst2", "test"),
    ("SST-2 → IMDb", "sst2", "shift"),
    ("MNLI", "mnli", "test"),
    ("MNLI → SNLI", "mnli", "shift"),
)


def covariate_table(benches: Benches) -> None:
    title("Who is right: AUROC of errors, in domain and under covariate shift")
    head("texts", "accuracy", "out of scope", "confidence", "scope", "confidence × chance")
    bench = benches["reference"]
    for name, task, which in (shift for shift in SHIFTS if shift[1] in bench.settings):
        outcomes, values = bench.runs.outcomes(bench.cell(task, "base+TS", "nll", which)), []
        for outcome, p in zip(outcomes, bench.p_values(task, which), strict=True):
            confidence, wrong = outcome.rows.confidence, outcome.rows.correct == 0
            errors = [auroc(-trust, wrong) for trust in (confidence, p, confidence * chance_in_scope(p))]
            values.append([1 - wrong.mean(), np.mean(p <= 0.01), *errors])
        line(name, *(f"{value:.3f}" for value in np.mean(values, axis=0)))


TABLES: dict[str, Callable[[Benches], None]] = {
    "out-of-scope": out_of_scope_table,
    "mixture": mixture_table,
    "covariate": covariate_table,
}


def main() -> None:
    parser = parser_of_models(__doc__, cache=True, seeds="0,1,2", settings=",".join(SETTINGS))
    parser.set_defaults(whole=False, methods="")
    only(parser, TABLES, lambda options: {form: Form(options, form) for form in FORMS})


if __name__ == "__main__":
    main()
