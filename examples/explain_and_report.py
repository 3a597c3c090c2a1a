"""Explain one text as an HTML page, then compare methods on your own CSV and write a report.

    python explain_and_report.py MODEL labelled.csv "It is not bad at all." -o out

Half of the labelled rows calibrate, the other half test. Predictions are stored in out/store and not computed twice.
"""

import argparse
from pathlib import Path

from uatlite import UncertaintyClassifier
from uatlite.lab.evaluate.evaluate import evaluate
from uatlite.lab.evaluate.plan import Plan, choose_set, parse_contenders
from uatlite.lab.evaluate.store import Store
from uatlite.lab.report.evaluation_page import build_report
from uatlite.lab.report.results import write_results
from uatlite.model.load import load_checkpoint


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

    clf = UncertaintyClassifier.from_pretrained(given.model, method="analytic")
    explanation = clf.explain(given.explain)
    for word in explanation.words:
        print(f"{word.word.text:<20} {word.share:6.1%} of the variance, {word.masked_confidence:.1%} sure if masked")
    explanation.save(given.output / "explanation.html")

    rows = choose_set(None, given.labelled, text=given.text, text_pair=None, label=given.label)
    plan = Plan(parse_contenders(given.methods), rows, seeds=2)
    results = evaluate(load_checkpoint(given.model), plan, Store(given.output / "store"))
    for method, scores in results.sets[0].scores.items():
        print(f"{method:<14} accuracy {scores['accuracy'].mean:.3f}  NLL {scores['nll'].mean:.3f}")
    write_results(results, given.output)
    print(f"Wrote {given.output / 'explanation.html'} and {build_report(given.output, given.output)}")


if __name__ == "__main__":
    main()
