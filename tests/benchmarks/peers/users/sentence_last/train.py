"""A logistic regression on the sentence embedding."""

import os
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression


def load(split):
    return [np.load(Path(os.environ["OUT"]) / f"{split}{part}.npy") for part in ("", "-labels")]


probe = LogisticRegression(max_iter=1000).fit(*load("train"))
print("none", probe.score(*load("test")))
