"""Prediction of new rows against the extraction of the same rows alone.

    python -m tests.benchmarks.bench_predict [--data DIR] [--rows 2000] [--rounds 3] [--json FILE]

In alternation in one process: ``gaam_cache.extract`` of the rows, through published and synced
shards, and a predictor that was loaded once and is handed the same rows in chunks. Loading the
encoder is in neither, tokenising and the proof of some rows in both. Beside the time that passed
the processor time of all threads is compared, which others on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import gaam_cache
import gaam_decoder
from gaam_cache.config import ExtractConfig
from gaam_cache.extraction import missing
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
    rows = len(texts)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        predictors = load_all(Path(folder), dataset, arguments.device)

        processor: dict[str, list[float]] = {name: [] for name in ("extraction", *predictors)}

        def extraction() -> float:
            make_shards, start = missing.make_shards, [0.0]

            def timed(*arguments: Any, **options: Any) -> str | None:
                start[0] = time.process_time()
                try:
                    return make_shards(*arguments, **options)
                finally:
                    processor["extraction"].append(rows / (time.process_time() - start[0]))

            missing.make_shards = timed
            try:
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    summary = gaam_cache.extract(replace(config, out=Path(out) / "cache"))
            finally:
                missing.make_shards = make_shards
            return summary.rows_made / summary.seconds

        def prediction(name: str) -> float:
            chunks = (texts[at : at + CHUNK_ROWS] for at in range(0, rows, CHUNK_ROWS))
            start, used = time.perf_counter(), time.process_time()
            done = sum(len(found) for found in predictors[name].stream(chunks))
            processor[name].append(done / (time.process_time() - used))
            return done / (time.perf_counter() - start)

        contestants = {"extraction": extraction} | {
            name: partial(prediction, name) for name in predictors
        }
        alternate(1, contestants)  # warm up
        for values in processor.values():
            values.clear()
        figures = alternate(arguments.rounds, contestants)
    result = {
        "machine": describe(torch.device(arguments.device)),
        "dataset": dataset,
        "rows": rows,
        "seeds": SEEDS,
        "contestants": {
            name: {
                "texts_per_second": statistics.median(values),
                "ratio_to_extraction": median_ratio(values, figures["extraction"]),
                "ratio_of_processor_time": median_ratio(processor[name], processor["extraction"]),
            }
            for name, values in figures.items()
        },
    }
    print(json.dumps(result["machine"]))
    for name, values in figures.items():
        ratio = median_ratio(values, figures["extraction"])
        used = median_ratio(processor[name], processor["extraction"])
        line = f"{name:<16} {statistics.median(values):7.1f} texts/s  x{ratio:.3f} extraction"
        print(f"{line}, x{used:.3f} by processor time")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
