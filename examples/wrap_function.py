"""Whatever gives probabilities, here a pipeline of transformers: python wrap_function.py MODEL labelled.csv new.csv"""

import sys

import pandas as pd
from transformers import pipeline

import uatlite

classify, (labelled, new) = pipeline("text-classification", sys.argv[1], top_k=None), map(pd.read_csv, sys.argv[2:])
clf = uatlite.wrap(classify, classes=sorted(set(labelled.label)))
clf.calibrate(labelled.text, labelled.label, target_risk=0.1)
print(clf.predict(new.text))
