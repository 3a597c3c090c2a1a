"""From a fine-tuned checkpoint and your own CSV to a decision for every new row.

    python own_csv.py MODEL labelled.csv new.csv -o decisions.csv --text body --label stars

MODEL is a directory or a hub id. The labelled rows, a few hundred of them, must not have trained the model.
"""

import argparse

import pandas as pd

from uatlite import UncertaintyClassifier


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("labelled", help="CSV with a text and a label in every row")
    arguments.add_argument("new", help="CSV with the texts to decide on")
    arguments.add_argument("--text", default="text", help="column of the text, in both files")
    arguments.add_argument("--label", default="label", help="column of the label: a class name, or its number from 0")
    arguments.add_argument("--target-risk", type=float, default=0.05, help="largest share of wrong answers")
    arguments.add_argument("-o", "--output", default="decisions.csv")
    arguments.add_argument("--save", help="directory for the calibrated classifier")
    given = arguments.parse_args()

    labelled, new = pd.read_csv(given.labelled), pd.read_csv(given.new)
    clf = UncertaintyClassifier.from_pretrained(given.model)
    clf.calibrate(labelled[given.text], labelled[given.label], target_risk=given.target_risk)
    assert clf.calibration_ is not None
    print(*clf.calibration_.describe(), sep="\n")  # what was learned, and what is promised
    if given.save:
        clf.save_pretrained(given.save)  # `uatlite predict` and transformers load it

    pred = clf.predict(new[given.text])
    print(pred)
    new["label"] = pred.labels
    new["confidence"] = pred.confidence
    new["decision"] = ["abstain" if abstain else "answer" for abstain in pred.abstain]
    new["reason"] = pred.reasons  # answered, below the threshold, unstable under dropout, out of scope, cut
    new.to_csv(given.output, index=False)
    print(f"Wrote {given.output}: {int((~pred.abstain).sum())} of {len(new)} rows answered.")


if __name__ == "__main__":
    main()
