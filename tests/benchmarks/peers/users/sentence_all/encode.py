"""Every layer of the encoder, mean over tokens, side by side as one embedding."""

import csv
import os
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer


class AllLayers(torch.nn.Module):
    """In the place of the library's pooling, which knows one layer."""

    def forward(self, features):
        mask = features["attention_mask"][:, None, :, None]
        layers = torch.stack(features["all_layer_embeddings"][1:], 1)
        features["sentence_embedding"] = ((layers * mask).sum(2) / mask.sum(2)).flatten(1)
        return features


encoder = Transformer(os.environ["ENCODER"], config_kwargs={"output_hidden_states": True})
model = SentenceTransformer(modules=[encoder, AllLayers()], device="cpu")
for split in ("train", "test"):
    with (Path(os.environ["DATA"]) / f"{split}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.save(Path(os.environ["OUT"]) / f"{split}.npy", model.encode([row["text"] for row in rows]))
    np.save(Path(os.environ["OUT"]) / f"{split}-labels.npy", [row["label"] for row in rows])
