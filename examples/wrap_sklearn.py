"""scikit-learn that knows when not to answer: python wrap_sklearn.py train.csv labelled.csv new.csv"""

import sys

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import uatlite

train, labelled, new = map(pd.read_csv, sys.argv[1:])
model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(train.text, train.label)
clf = uatlite.wrap(model).calibrate(labelled.text, labelled.label, target_risk=0.1)
print(clf.predict(new.text))
