"""Extraction end to end against the loops that people write.

    python -m tests.benchmarks.bench_extract [--encoder NAME] [--data DIR] [--rows 2000]
        [--rounds 3] [--json FILE]

Contestants, in alternation in one process: one text at a time with ``output_hidden_states`` (the
published way) and batches of 32 in data-set order with padding, float32; ours through published
shards, float32 and bfloat16; one text at a time in bfloat16. Loading the model is in none of
them, tokenising in all. It holds README's "beside what you would use instead": encoding takes no
longer than a loop of transformers.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.extraction.summary import ExtractSummary
from gaam_cache.sources.base import find_source
from tests.benchmarks._machine import (
    alternate,
    describe,
    matrix_product_flops,
    median_ratio,
)

BASELINE_SHARE = 4
"""The slow baselines run on every fourth text."""


class Bench:
    """The contestants; each returns texts per second."""

    def __init__(self, config: ExtractConfig, rows: int) -> None:
        self.config = config
        encoder = TextEncoder.open(config)
        encoder.load()
        self.tokenizer = encoder._tokens.tokenizer.pretrained
        self.model = encoder._forward.running_model
        # most tokenizers of causal models have no padding token; what is padded is masked
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.in_bfloat16 = copy.deepcopy(self.model).to(torch.bfloat16)
        part = find_source(config.dataset).read(config, config.splits[0])
        self.texts = list(part.inputs[:rows])
        self.max_length = encoder.max_length
        self.summaries: dict[str, list[ExtractSummary]] = {}
        self.states: dict[str, np.ndarray] = {}
        self.proof_shares: dict[str, list[float]] = {}

    @contextmanager
    def proof_timed(self) -> Iterator[list[float]]:
        """Sum up the processor time, of all threads, that goes into encoding rows again."""
        encode_alone, spent = TextEncoder.encode_alone, [0.0]

        def timed(encoder: TextEncoder, item: list[int]) -> dict[str, torch.Tensor]:
            start = time.process_time()
            try:
                return encode_alone(encoder, item)
            finally:
                spent[0] += time.process_time() - start

        TextEncoder.encode_alone = timed  # type: ignore[method-assign,assignment]
        try:
            yield spent
        finally:
            TextEncoder.encode_alone = encode_alone  # type: ignore[method-assign]

    @torch.no_grad()
    def one_at_a_time(self, model: torch.nn.Module) -> float:
        """As published: one forward pass per text, all hidden states, collected in a list."""
        texts = self.texts[::BASELINE_SHARE]
        collected = []
        start = time.perf_counter()
        for text in texts:
            inputs = self.tokenizer(
                text, return_tensors="pt", truncation=True, max_length=self.max_length
            )
            output = model(**inputs, output_hidden_states=True)
            collected.append(
                torch.stack([h[0].mean(0) for h in output.hidden_states[1:]])
            )
        return len(texts) / (time.perf_counter() - start)

    @torch.no_grad()
    def padded_batches(self) -> float:
        """Batches of 32 in order, padded by the tokenizer, masked mean."""
        texts = self.texts[::BASELINE_SHARE]
        collected = []
        start = time.perf_counter()
        for first in range(0, len(texts), 32):
            inputs = self.tokenizer(
                texts[first : first + 32],
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=self.max_length,
            )
            output = self.model(**inputs, output_hidden_states=True)
            mask = inputs["attention_mask"][..., None]
            layers = [(h * mask).sum(1) / mask.sum(1) for h in output.hidden_states[1:]]
            collected.append(torch.stack(layers, 1))
        return len(texts) / (time.perf_counter() - start)

    def ours(self, dtype: str) -> float:
        """The real extraction, from rows to published and synced shards.

        What the proof of the shards costs is the processor time of the calls that it consists of.
        """
        with tempfile.TemporaryDirectory(dir=".") as folder:
            config = ExtractConfig(
                **{
                    **{
                        f: getattr(self.config, f)
                        for f in ("encoder", "dataset", "text_columns")
                    },
                    "splits": self.config.splits,
                    "limit": len(self.texts),
                    "dtype": dtype,
                    "out": Path(folder) / "cache",
                }
            )
            before = time.process_time()
            with self.proof_timed() as proof:
                summary = gaam_cache.extract(config)
            self.proof_shares.setdefault(dtype, []).append(
                proof[0] / (time.process_time() - before)
            )
            cache = gaam_cache.open_cache(config.out)
            self.states[dtype] = (
                cache[config.splits[0]].embeddings[:].astype(np.float32)
            )
        self.summaries.setdefault(dtype, []).append(summary)
        return summary.rows_made / summary.seconds


def flops_per_token(model: torch.nn.Module, mean_squared_over_mean: float) -> float:
    """Multiply-adds x 2 of all linear maps of the layers, and of attention at these lengths."""
    hidden_size = int(model.config.hidden_size)  # type: ignore[union-attr,arg-type]
    layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))
    linear = sum(
        int(m.weight.numel())
        for m in layers.modules()
        if isinstance(m, torch.nn.Linear)
    )
    return 2 * linear + 4 * mean_squared_over_mean * hidden_size * len(layers)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--encoder", default=ExtractConfig().encoder)
    parser.add_argument("--data", default="../shared/data/ag_news")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    dataset = arguments.data if Path(arguments.data).is_dir() else "news-sample"
    config = ExtractConfig(
        encoder=arguments.encoder,
        dataset=dataset,
        splits=("train",),
        limit=arguments.rows,
    )
    cpu = torch.device("cpu")
    bench = Bench(config, arguments.rows)
    contestants: dict[str, Callable[[], float]] = {
        "one at a time": partial(bench.one_at_a_time, bench.model),
        "batches of 32, padded": bench.padded_batches,
        "gaam float32": lambda: bench.ours("float32"),
        "one at a time bfloat16": partial(bench.one_at_a_time, bench.in_bfloat16),
        "gaam bfloat16": lambda: bench.ours("bfloat16"),
    }
    alternate(
        1, {name: contestants[name] for name in ("one at a time", "gaam float32")}
    )  # warm up
    bench.summaries.clear()
    bench.proof_shares.clear()
    products = {
        str(dtype).removeprefix("torch."): partial(matrix_product_flops, cpu, dtype)
        for dtype in (torch.float32, torch.bfloat16)
    }
    # the ceiling is measured in every round too: these machines drift
    figures = alternate(arguments.rounds, contestants | products)
    ceilings = {name: figures.pop(name) for name in products}
    lengths = bench.tokenizer(bench.texts, truncation=True, max_length=bench.max_length)
    counts = [len(ids) for ids in lengths["input_ids"]]
    per_token = flops_per_token(bench.model, sum(n * n for n in counts) / sum(counts))
    result: dict[str, Any] = {
        "machine": describe(cpu),
        "encoder": arguments.encoder,
        "dataset": dataset,
        "rows": len(bench.texts),
        "ceiling_gflops": {
            name: statistics.median(values) / 1e9 for name, values in ceilings.items()
        },
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "contestants": {},
    }
    print(json.dumps(result["machine"]))
    for name, values in figures.items():
        entry: dict[str, Any] = {
            "texts_per_second": statistics.median(values),
            "ratio_to_one_at_a_time": median_ratio(values, figures["one at a time"]),
            "ratio_to_padded_batches": median_ratio(
                values, figures["batches of 32, padded"]
            ),
        }
        line = f"{name:<22} {entry['texts_per_second']:7.1f} texts/s"
        line += f"  x{entry['ratio_to_one_at_a_time']:.2f} one at a time"
        line += f"  x{entry['ratio_to_padded_batches']:.2f} padded"
        if name.startswith("gaam"):
            dtype = name.split()[1]
            runs = bench.summaries[dtype]
            rate = statistics.median(s.tokens / s.seconds for s in runs)
            entry |= {
                "tokens_per_second": rate,
                "share_of_ceiling": per_token
                * median_ratio([s.tokens / s.seconds for s in runs], ceilings[dtype]),
                "padding_share": runs[0].padding_share,
                "write_share": statistics.median(
                    s.write_seconds / s.seconds for s in runs
                ),
                "proof_share": statistics.median(bench.proof_shares[dtype]),
            }
            share = 100 * entry["share_of_ceiling"]
            line += f"\n{'':<22} {rate:,.0f} tokens/s, {share:.0f}% of the "
            line += f"{result['ceiling_gflops'][dtype]:.0f} GFLOP/s matrix-product ceiling, "
            line += f"padding {100 * entry['padding_share']:.2f}%, "
            line += f"checking, hashing and writing {100 * entry['write_share']:.2f}% of the time, "
            line += f"proof {100 * entry['proof_share']:.2f}% of the processor time"
        result["contestants"][name] = entry
        print(line)
    exact = bench.states["float32"]
    error = np.linalg.norm(bench.states["bfloat16"] - exact, axis=(0, 2))
    result["bfloat16_deviation"] = (error / np.linalg.norm(exact, axis=(0, 2))).tolist()
    shown = ", ".join(f"{100 * value:.2f}%" for value in result["bfloat16_deviation"])
    print(f"bfloat16 states against float32, relative deviation by layer: {shown}")
    print(f"peak memory of the process {result['peak_memory_mb']:.0f} MB")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
