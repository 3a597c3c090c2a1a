"""From an evaluation on the disk to a report: the page, and every figure as files beside it.

DIR/report.html                    all in one file
    figures/NAME.svg .png .csv     each figure, and its numbers
"""

from pathlib import Path

from uatlite.data.writing import atomic_file
from uatlite.errors import DataError
from uatlite.report import abstention as abstaining
from uatlite.report.evaluation import open_evaluation
from uatlite.report.explanations import FILE, Explanation, read_explanations
from uatlite.report.findings import findings
from uatlite.report.gallery import figures_of
from uatlite.report.page import Page, to_html
from uatlite.report.texts import as_line, examples_of

PAGE, FIGURES = "report.html", "figures"
SHOWN = 12
"""Texts that it abstained on are listed up to so many, the least sure first."""


def build_report(
    evaluation: str | Path,
    directory: str | Path,
    *,
    contender: str | None = None,
    target_risk: float = abstaining.TARGET_RISK,
    data_dir: str | Path | None = None,
    title: str = "When not to trust this classifier",
) -> Path:
    """Write the report of an evaluation and return the page's path. No model is needed.

    Word-by-word explanations are shown where an `explanations.json` lies beside the results.
    """
    directory = Path(directory)
    opened = open_evaluation(evaluation)
    results = opened.results
    abstention = abstaining.abstain(opened, contender, target=target_risk)
    figures = [figures_of(opened, one) for one in results.sets]
    first = results.sets[0]
    examples = examples_of(opened.predictions(next(iter(first.runs)), first.name).provenance, data_dir)
    shown = () if abstention is None else abstention.abstained[:SHOWN]
    page = Page(
        title=title,
        results=results,
        findings=findings(results, abstention),
        figures=figures,
        abstention=abstention,
        abstained=[(row, as_line(examples[row.id]) if row.id in examples else None) for row in shown],
        explanations=_explanations(Path(evaluation)),
    )
    try:
        (directory / FIGURES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be made: {error.strerror}.") from error
    for figure in (figure for of_set in figures for figure in of_set.all):
        figure.write(directory / FIGURES)
    with atomic_file(directory / PAGE) as file:
        file.write(to_html(page).encode())
    return directory / PAGE


def _explanations(evaluation: Path) -> tuple[Explanation, ...]:
    for directory in (evaluation, evaluation.parent):
        if (directory / FILE).is_file():
            return read_explanations(directory / FILE)
    return ()
