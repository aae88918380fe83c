"""Pooled states of the training rows out of the cache of lmprobe, beside it as one file (N, L, D).

Not part of what a user writes, and not timed.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
from lmprobe import load_layer_across_prompts

data, out, encoder = Path(os.environ["DATA"]), Path(os.environ["OUT"]), os.environ["ENCODER"]
with (data / "train.csv").open(newline="", encoding="utf-8") as file:
    texts = [row["text"] for row in csv.DictReader(file)]
layers = json.loads((Path(encoder) / "config.json").read_text())["num_hidden_layers"]
pooled = []
for layer in range(layers):
    states, masks = load_layer_across_prompts(encoder, texts, layer)
    rows = zip(states, masks, strict=True)
    pooled.append(
        [((x * m[..., None]).sum(1) / m.sum(1, keepdim=True))[0].numpy() for x, m in rows]
    )
np.save(out.parent / "lmprobe-states.npy", np.stack(pooled, 1).astype(np.float32))
