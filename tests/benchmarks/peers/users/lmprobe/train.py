"""A logistic regression on all layers side by side."""

import csv
import os
from pathlib import Path

from lmprobe import Probe


def load(split):
    with (Path(os.environ["DATA"]) / f"{split}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["label"] for row in rows})
    return [row["text"] for row in rows], [names.index(row["label"]) for row in rows]


probe = Probe(model=os.environ["ENCODER"], layers="all", pooling="mean", device="cpu")
probe.fit(*load("train"))
print("none", probe.score(*load("test")))
