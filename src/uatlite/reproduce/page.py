"""All tables on one HTML page with everything in it."""

from collections.abc import Sequence

from uatlite.report.figures import Figure
from uatlite.report.page import style_sheet, template
from uatlite.reproduce.claims import ALIKE, HELD, LIKELY, REVERSED, UNKNOWN, UNLIKELY, summary
from uatlite.reproduce.run import Reproduction
from uatlite.reproduce.settings import Settings
from uatlite.reproduce.texts import interval, number, printed, signed

MARKS = {HELD: "right", LIKELY: "", UNLIKELY: "", REVERSED: "wrong", ALIKE: "", UNKNOWN: ""}
"""outcome -> the class that colours it"""


def to_html(done: Sequence[tuple[Reproduction, Sequence[Figure]]], settings: Settings) -> str:
    """The page; every text in it is escaped by the template engine."""
    verdicts = [verdict for reproduction, _ in done for verdict in reproduction.verdicts]
    return str(
        template("reproduction.html.j2").render(
            done=done,
            settings=settings.describe(),
            summary=summary(verdicts),
            of_table=summary,
            marks=MARKS,
            css=style_sheet(),
            number=number,
            interval=interval,
            printed=printed,
            signed=signed,
        )
    )
