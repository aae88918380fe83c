"""Prediction of new rows against the extraction of the same rows alone.

    python -m tests.benchmarks.bench_predict [--data DIR] [--rows 2000] [--rounds 3] [--json FILE]

In alternation in one process: ``gaam_cache.extract`` of the rows, through published and synced
shards, and a predictor that was loaded once and is handed the same rows in chunks. Loading the
encoder is in neither, tokenising and the proof of some rows in both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import torch

import gaam_cache
import gaam_decoder
from gaam_cache.config import ExtractConfig
from gaam_cache.sources._base import find_source
from gaam_decoder import TrainConfig
from gaam_decoder.use.predictor import CHUNK_ROWS, Predictor
from tests.benchmarks._machine import alternate, describe, median_ratio

DECODERS = ("gaam + linear", "mha + conv")
"""A cheap one and a dear one."""
SEEDS = 10
LEARN_ROWS = 200
"""Of the cache that the decoders learn from."""


def load_all(folder: Path, dataset: str, device: str) -> dict[str, Predictor]:
    """Predictors of runs on a small cache, their encoder loaded."""
    config = ExtractConfig(dataset=dataset, limit=LEARN_ROWS, out=folder / "cache", device=device)
    gaam_cache.extract(config)
    found = {}
    for name in DECODERS:
        attention, head = name.split(" + ")
        [run] = gaam_decoder.train(
            TrainConfig(
                cache=config.out,
                runs=folder / "runs",
                attn=(attention,),
                head=head,
                seeds=tuple(range(SEEDS)),
                epochs=1,
                probe=False,
                device=device,
            )
        )
        found[name] = gaam_decoder.load(run.path, device=device)
        found[name].predict(["a text"])
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data/ag_news")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    dataset = arguments.data if Path(arguments.data).is_dir() else "news-sample"
    config = ExtractConfig(
        dataset=dataset, splits=("train",), limit=arguments.rows, device=arguments.device
    )
    texts = list(find_source(dataset).read(config, "train").inputs)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        predictors = load_all(Path(folder), dataset, arguments.device)

        def extraction() -> float:
            with tempfile.TemporaryDirectory(dir=folder) as out:
                summary = gaam_cache.extract(replace(config, out=Path(out) / "cache"))
            return summary.rows_made / summary.seconds

        def prediction(predictor: Predictor) -> float:
            chunks = (texts[at : at + CHUNK_ROWS] for at in range(0, len(texts), CHUNK_ROWS))
            start = time.perf_counter()
            rows = sum(len(found) for found in predictor.stream(chunks))
            return rows / (time.perf_counter() - start)

        contestants = {"extraction": extraction} | {
            name: lambda one=one: prediction(one) for name, one in predictors.items()
        }
        alternate(1, contestants)  # warm up
        figures = alternate(arguments.rounds, contestants)
    result = {
        "machine": describe(torch.device(arguments.device)),
        "dataset": dataset,
        "rows": len(texts),
        "seeds": SEEDS,
        "contestants": {
            name: {
                "texts_per_second": statistics.median(values),
                "ratio_to_extraction": median_ratio(values, figures["extraction"]),
            }
            for name, values in figures.items()
        },
    }
    print(json.dumps(result["machine"]))
    for name, values in figures.items():
        ratio = median_ratio(values, figures["extraction"])
        print(f"{name:<16} {statistics.median(values):7.1f} texts/s  x{ratio:.3f} extraction")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
