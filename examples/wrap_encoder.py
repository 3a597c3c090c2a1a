"""An encoder with a linear head, frozen: python wrap_encoder.py ENCODER train.csv labelled.csv new.csv"""

import sys

import pandas as pd
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression

import uatlite

encoder, (train, labelled, new) = SentenceTransformer(sys.argv[1]), map(pd.read_csv, sys.argv[2:])
head = LogisticRegression(C=10, max_iter=1000).fit(encoder.encode(train.text.tolist()), train.label)
clf = uatlite.wrap(encoder, head=head)
clf.calibrate(labelled.text, labelled.label, target_risk=0.1, reference=train.text)
print(clf.predict(new.text))
