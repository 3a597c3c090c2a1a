"""How often rows of each reason are wrong, and how many of the first rows to review are.

    uatlite predict DIR test.csv --keep label -o scored.csv
    python benchmarks/review.py scored.csv --gold input_label

`--gold` is the column of the true label in the scored file. A label that the model does not know counts as wrong.
"""

import argparse
from collections import Counter

from uatlite.scoring.review import review_rows
from uatlite.text.rows import Row, read_rows

FIRST = (20, 50, 100)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("scored")
    arguments.add_argument("--gold", default="input_label")
    given = arguments.parse_args()

    rows = [row.values for row in read_rows(given.scored) if isinstance(row, Row)]
    wrong = Counter(row["reason"] for row in rows if row["label"] != row[given.gold])
    print("| reason | rows | wrong |\n|---|---:|---:|")
    for reason, count in Counter(row["reason"] for row in rows).most_common():
        print(f"| {reason} | {count:,} | {wrong[reason] / count:.1%} |")
    print(f"| all | {len(rows):,} | {wrong.total() / len(rows):.1%} |")

    ranked = [row["label"] != row[given.gold] for row in review_rows(given.scored, len(rows))]
    doubtful = sorted(rows, key=lambda row: float(str(row["confidence"])))
    print("\n| first rows | wrong, as `uatlite review` orders them | wrong, by confidence alone |\n|---:|---:|---:|")
    for first in (count for count in FIRST if count <= len(rows)):
        alone = sum(row["label"] != row[given.gold] for row in doubtful[:first])
        print(f"| {first} | {sum(ranked[:first]) / first:.0%} | {alone / first:.0%} |")


if __name__ == "__main__":
    main()
