"""A SetFit model that knows when not to answer: python wrap_setfit.py MODEL labelled.csv new.csv"""

import sys

import pandas as pd
from setfit import SetFitModel

import uatlite

model, (labelled, new) = SetFitModel.from_pretrained(sys.argv[1]), map(pd.read_csv, sys.argv[2:])
clf = uatlite.wrap(model).calibrate(labelled.text, labelled.label, target_risk=0.1)
print(clf.predict(new.text))
