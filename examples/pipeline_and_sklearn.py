"""The classifier inside scikit-learn and inside a transformers pipeline.

    python pipeline_and_sklearn.py MODEL labelled.csv -o calibration.png

Labels are class names, as in the model's `id2label`. scikit-learn sorts classes, so it is given their numbers.
"""

import argparse

import pandas as pd
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import classification_report, log_loss
from sklearn.model_selection import cross_val_score, train_test_split
from transformers import pipeline

from uatlite import UncertaintyClassifier


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("labelled", help="CSV with the columns text and label")
    arguments.add_argument("-o", "--output", default="calibration.png", help="reliability diagram")
    given = arguments.parse_args()

    rows = pd.read_csv(given.labelled)
    clf = UncertaintyClassifier.from_pretrained(given.model, indices=True)  # labels are the model's columns
    texts, labels = rows["text"].to_numpy(), rows["label"].map(clf.class_names.index).to_numpy()

    # scikit-learn: each fold calibrates a clone on the other folds. The weights are shared and never change.
    scores = cross_val_score(clf, texts, labels, scoring="neg_log_loss", cv=3)
    print(f"cross-validated NLL: {-scores.mean():.3f} (folds {', '.join(f'{-score:.3f}' for score in scores)})")

    fit_texts, test_texts, fit_labels, test_labels = train_test_split(
        texts, labels, test_size=0.5, random_state=0, stratify=labels
    )
    clf.calibrate(fit_texts, fit_labels)
    pred = clf.predict(test_texts)
    print(f"test NLL: {log_loss(test_labels, pred.probabilities, labels=clf.classes_):.3f}")
    print(classification_report(test_labels, pred, target_names=clf.class_names, labels=clf.classes_, zero_division=0))
    display = CalibrationDisplay.from_predictions(pred.predicted == test_labels, pred.confidence, n_bins=10)
    display.figure_.savefig(given.output)

    # transformers: the pipeline returns calibrated scores.
    pipe = pipeline("text-classification", model=clf.as_model(), tokenizer=clf.tokenizer)
    for text, found in zip(test_texts[:3], pipe(list(test_texts[:3])), strict=True):
        print(f"{found['label']} {found['score']:.3f}  {text[:60]}")


if __name__ == "__main__":
    main()
