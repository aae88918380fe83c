"""Every layer of the encoder, mean over tokens, in one file of each split."""

import csv
import os
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

DATA, OUT = Path(os.environ["DATA"]), Path(os.environ["OUT"])
BATCH = 32

tokenizer = AutoTokenizer.from_pretrained(os.environ["ENCODER"])
model = AutoModel.from_pretrained(os.environ["ENCODER"], dtype=torch.float32).eval()
for split in ("train", "test"):
    with (DATA / f"{split}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    states = []
    for start in range(0, len(rows), BATCH):
        texts = [row["text"] for row in rows[start : start + BATCH]]
        tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            layers = model(**tokens, output_hidden_states=True).hidden_states[1:]
        mask = tokens["attention_mask"][:, None, :, None]
        states.append((torch.stack(layers, 1) * mask).sum(2) / mask.sum(2))
    names = sorted({row["label"] for row in rows})
    np.save(OUT / f"{split}.npy", torch.cat(states).numpy())
    np.save(OUT / f"{split}-labels.npy", [names.index(row["label"]) for row in rows])
