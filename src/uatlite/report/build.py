"""From an evaluation on the disk to a report: the page, and every figure as files beside it.

DIR/report.html                    all in one file
    figures/NAME.svg .png .csv     each figure, and its numbers
"""

from pathlib import Path

from uatlite.data.writing import atomic_file
from uatlite.errors import DataError
from uatlite.report import abstention as abstaining
from uatlite.report.evaluation import home_of, open_evaluation
from uatlite.report.explanations import FILE, read_explanations
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
    model: str | Path | None = None,
    title: str = "When not to trust this classifier",
) -> Path:
    """Write the report of an evaluation and return the page's path.

    No model is needed, but for texts explained word by word: these are computed with `model`, the one that was
    evaluated, and kept in `explanations.json` beside the results; where that file lies they are shown without it.
    """
    directory, home = Path(directory), home_of(evaluation)
    opened = open_evaluation(home)
    results = opened.results
    abstention = abstaining.abstain(opened, contender, target=target_risk)
    if model is not None and abstention is not None:
        from uatlite.report.explaining import explain_stored  # torch, which a report does without

        explain_stored(opened, abstention, model, home / FILE, data_dir)
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
        explanations=read_explanations(home / FILE) if (home / FILE).is_file() else (),
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
