"""Every layer of every token, in the cache of lmprobe."""

import csv
import os
from pathlib import Path

import lmprobe.backends
from lmprobe import Probe

# lmprobe 0.10.3 knows the layers of decoders alone, and refuses BERT
lmprobe.backends._get_decoder_layers = lambda model: list(model.bert.encoder.layer)
probe = Probe(model=os.environ["ENCODER"], layers="all", pooling="mean", device="cpu")
for split in ("train", "test"):
    with (Path(os.environ["DATA"]) / f"{split}.csv").open(newline="") as file:
        probe.warmup([row["text"] for row in csv.DictReader(file)])
