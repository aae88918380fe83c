"""The sentence embedding of every row."""

import csv
import os
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(os.environ["ENCODER"], device="cpu")
for split in ("train", "test"):
    with (Path(os.environ["DATA"]) / f"{split}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.save(Path(os.environ["OUT"]) / f"{split}.npy", model.encode([row["text"] for row in rows]))
    np.save(Path(os.environ["OUT"]) / f"{split}-labels.npy", [row["label"] for row in rows])
