"""How often rows of each reason are wrong, and how many of the first rows to review are.

    uatlite predict DIR test.csv --keep label -o scored.csv
    python benchmarks/review.py scored.csv --gold input_label

`--gold` is the column of the true label in the scored file. A label that the model does not know counts as wrong.
"""

from collections import Counter

from harness import head, line, parser_of
from uatlite.scoring.review import review_rows
from uatlite.text.rows import Row, read_rows

FIRST = (20, 50, 100)


def main() -> None:
    parser = parser_of(__doc__, gold="input_label")
    parser.add_argument("scored")
    given = parser.parse_args()
    rows = [row.values for row in read_rows(given.scored) if isinstance(row, Row)]
    wrong = Counter(row["reason"] for row in rows if row["label"] != row[given.gold])
    head("reason", "rows", "wrong")
    for reason, count in Counter(row["reason"] for row in rows).most_common():
        line(reason, f"{count:,}", f"{wrong[reason] / count:.1%}")
    line("all", len(rows), f"{wrong.total() / len(rows):.1%}")

    ranked = [row["label"] != row[given.gold] for row in review_rows(given.scored, len(rows))]
    doubtful = sorted(rows, key=lambda row: float(str(row["confidence"])))
    head("first rows", "wrong, as `uatlite review` orders them", "wrong, by confidence alone", left=0)
    for first in (count for count in FIRST if count <= len(rows)):
        alone = sum(row["label"] != row[given.gold] for row in doubtful[:first])
        line(first, f"{sum(ranked[:first]) / first:.0%}", f"{alone / first:.0%}")


if __name__ == "__main__":
    main()
