"""Explain one text as an HTML page, then compare methods on your own CSV and write a report.

    python explain_and_report.py MODEL labelled.csv "It is not bad at all." -o out

Half of the labelled rows calibrate, the other half test. Predictions are stored in out/store and not computed twice.
"""

import argparse
from pathlib import Path

import uatlite


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("labelled", type=Path, help="rows with a text and a label")
    arguments.add_argument("explain", help="the text to explain")
    arguments.add_argument("--text", default="text", help="column of the text")
    arguments.add_argument("--label", default="label", help="column of the label")
    arguments.add_argument("--methods", default="base,ts,fast+ts,analytic+its")
    arguments.add_argument("-o", "--output", type=Path, default=Path("out"))
    given = arguments.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)

    clf = uatlite.UncertaintyClassifier.from_pretrained(given.model, method="analytic")
    explanation = clf.explain(given.explain)
    for word in explanation.words:
        print(f"{word.word.text:<20} {word.share:6.1%} of the variance, {word.masked_confidence:.1%} sure if masked")
    explanation.save(given.output / "explanation.html")

    rows = {"data": given.labelled, "text": given.text, "label": given.label}
    results = uatlite.evaluate(given.model, given.output, **rows, methods=given.methods, seeds=2)
    for method, scores in results.sets[0].scores.items():
        print(f"{method:<14} accuracy {scores['accuracy'].mean:.3f}  NLL {scores['nll'].mean:.3f}")
    print(f"Wrote {given.output / 'explanation.html'} and {uatlite.report(given.output)}")


if __name__ == "__main__":
    main()
