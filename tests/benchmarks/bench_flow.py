"""Everything of an extraction but the encoder: how many short texts a second, and what takes them.

    python -m tests.benchmarks.bench_flow [--rows 100000] [--rounds 3] [--profile] [--json FILE]

The encoder takes no time: its states are one constant, of 6 layers x 384, broadcast over a batch.
All else is that of ``gaam extract`` through all-MiniLM-L6-v2: reading, checking, tokenising,
batching, padding, pooling's last step, copying, assembling, proof, hashing, writing and syncing.
Beside it the bare tokenizer on the same texts: what no extraction through it can pass.

Of every part the wall time and the processor time of its own thread; three threads work beside each
other, and the tokenizer has more threads of its own, so that neither sums up to the whole.
"""

from __future__ import annotations

import argparse
import cProfile
import csv
import importlib
import json
import pstats
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import gaam_cache
from gaam_cache.bundle import data_path
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._forward import Batch
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.encoders.text import _TextForward as TextForward
from tests.benchmarks._machine import describe, median_ratio

LAYERS, HIDDEN = 6, 384
WORDS_OF_A_TEXT = (5, 10)
"""At least, and fewer than; 8 to 20 tokens, with those around a text 13 on average."""
PARTS = {
    "read rows and check them": ("gaam_cache.sources.files:FileSource.read",),
    "look for repeated texts": ("gaam_cache.sources._row_checks:repeated_texts",),
    "hash rows": ("gaam_cache.extraction.job:hash_rows",),
    "hash encoder, open tokenizer": (
        "gaam_cache.encoders.text:TextEncoder.open",
        "gaam_cache.encoders.text:TextEncoder.identity",
    ),
    "thread: tokenise": ("gaam_cache.extraction.worker:ShardWorker.prepare",),
    "  the tokenizer": ("transformers:PreTrainedTokenizerFast.__call__",),
    "  read texts again": ("gaam_cache.sources._spool:TextSpool.__getitem__",),
    "thread: encode": ("gaam_cache.extraction.worker:ShardWorker.encode",),
    "  plan batches": (
        "gaam_cache.extraction.states:token_budget_batches",
        "gaam_cache.extraction.states:costs",
    ),
    "  pad, move, stack": ("gaam_cache.encoders.text:TextEncoder.encode",),
    "  encode proof rows": (
        "gaam_cache.extraction.states:choose_rows",
        "gaam_cache.encoders.text:TextEncoder.encode_alone",
    ),
    "thread: write": ("gaam_cache.extraction.worker:ShardWorker.write",),
    "  assemble, finite check": ("gaam_cache.extraction.states:StateMaker._assemble",),
    "  prove": ("gaam_cache.extraction.states:StateMaker._prove",),
    "  build HDF5 image": ("gaam_cache.extraction.worker:build_image",),
    "  hash shard": ("gaam_cache.store.shard:digest_of",),
    "  write, sync, link": ("gaam_cache.store.shard:write_file",),
}
"""What is timed, by the name under which it is called."""


class FreeForward(TextForward):
    """A model whose states cost nothing."""

    def _reduced_hidden_states(self, batch: Batch, mask: Tensor | None) -> list[dict[str, Tensor]]:
        del mask
        return [{"mean": _STATE.expand(len(batch.length_B), HIDDEN)} for _ in range(LAYERS)]


_STATE = torch.linspace(-1, 1, HIDDEN)


class _Nothing(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> None:
        """Never called."""


def load(encoder: TextEncoder) -> None:
    """In the place of ``TextEncoder.load``."""
    encoder._forward = FreeForward(_Nothing(), device=encoder.device, pooling=("mean",))
    encoder._forward.vocabulary = 30522
    encoder._forward.mask = "where padded"
    encoder.num_layers, encoder.hidden_size, encoder.batching = LAYERS, HIDDEN, "padded"


class Clock:
    """Wall and processor time of every part."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time all parts while open."""
        before = []
        for part, places in PARTS.items():
            for place in places:
                module, _, names = place.partition(":")
                owner: Any = importlib.import_module(module)
                *path, name = names.split(".")
                for step in path:
                    owner = getattr(owner, step)
                kept = vars(owner).get(name, getattr(owner, name))
                before.append((owner, name, kept))
                setattr(owner, name, self._timed(part, kept))
        try:
            yield
        finally:
            for owner, name, kept in reversed(before):
                setattr(owner, name, kept)

    def _timed(self, part: str, kept: Any) -> Any:
        function = kept.__func__ if isinstance(kept, classmethod) else kept

        def timed(*args: Any, **options: Any) -> Any:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                found = function(*args, **options)
                # a generator has done nothing yet
                return list(found) if isinstance(found, Iterator) else found
            finally:
                self.wall[part] += time.perf_counter() - wall
                self.cpu[part] += time.thread_time() - cpu

        return classmethod(timed) if isinstance(kept, classmethod) else timed


def write_rows(path: Path, rows: int) -> None:
    """Short texts out of the words of the bundled sample, two classes."""
    with (data_path() / "news_sample" / "train.csv").open(encoding="utf-8", newline="") as file:
        text = " ".join(row["description"] for row in csv.DictReader(file))
    words = np.array(sorted(set(text.split())))
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["label", "text"])
        for row in range(rows):
            chosen = words[rng.integers(len(words), size=rng.integers(*WORDS_OF_A_TEXT))]
            writer.writerow(["ab"[row % 2], " ".join(chosen)])


def bare_tokenizer(encoder: TextEncoder, texts: list[str], shard_rows: int = 2048) -> float:
    """Texts per second of the tokenizer alone: Rust, no lists of Python, a shard's rows a call."""
    backend: Any = encoder._tokens.tokenizer
    backend = backend.backend_tokenizer
    backend.no_padding()
    backend.enable_truncation(encoder.max_length)
    start = time.perf_counter()
    for first in range(0, len(texts), shard_rows):
        backend.encode_batch_fast(texts[first : first + shard_rows])
    return len(texts) / (time.perf_counter() - start)


def run(config: ExtractConfig, wrapped: Callable[..., Any] = gaam_cache.extract) -> dict[str, Any]:
    """One extraction: rates, and what took them."""
    clock = Clock()
    wall, cpu = time.perf_counter(), time.process_time()
    with clock.running(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = wrapped(config)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "seconds": wall,
        "processor_seconds": cpu,
        "shards_texts_per_second": summary.rows_made / summary.seconds,
        "texts_per_second": summary.rows_made / wall,
        "tokens_per_text": summary.tokens / summary.rows_made,
        "parts": {part: [clock.wall[part], clock.cpu[part]] for part in PARTS},
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default=None, help="where the caches lie; default: as tempfile")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    TextEncoder.load = load  # type: ignore[method-assign]
    torch.set_num_threads(1)  # it only copies: a second thread would wait for the first, spinning
    bare: list[float] = []
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=arguments.out) as folder:
        write_rows(Path(folder) / "train.csv", arguments.rows)
        base = {"dataset": folder, "splits": ("train",), "device": "cpu"}
        with (Path(folder) / "train.csv").open(encoding="utf-8", newline="") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
        encoder = TextEncoder.open(ExtractConfig(**base))
        for number in range(arguments.rounds + 1):
            config = ExtractConfig(out=Path(folder) / f"cache-{number}", **base)
            bare.append(bare_tokenizer(encoder, texts))
            runs.append(run(config))
        if arguments.profile:
            profile = cProfile.Profile()
            config = ExtractConfig(out=Path(folder) / "profiled", **base)
            profile.runcall(gaam_cache.extract, config)
            pstats.Stats(profile).sort_stats("cumulative").print_stats(40)
    del bare[0], runs[0]  # warm up
    _print(arguments.rows, bare, runs)
    if arguments.json:
        about = {"machine": describe(torch.device("cpu")), "bare_tokenizer": bare, "runs": runs}
        arguments.json.write_text(json.dumps(about, indent=2))


def _print(rows: int, bare: list[float], runs: list[dict[str, Any]]) -> None:
    def median(key: str) -> float:
        return statistics.median(one[key] for one in runs)

    print(json.dumps(describe(torch.device("cpu"))))
    print(f"{rows:,} texts of {median('tokens_per_text'):.1f} tokens, {LAYERS} x {HIDDEN} float16")
    print(f"bare tokenizer           {statistics.median(bare):9,.0f} texts/s")
    for name, key in (("shards", "shards_texts_per_second"), ("with reading", "texts_per_second")):
        ratio = median_ratio([one[key] for one in runs], bare)
        print(f"{name:<24} {median(key):9,.0f} texts/s  x{ratio:.2f} of the bare tokenizer")
    print(f"{'microseconds a text':<32} {'wall':>7} {'its thread':>11}")
    for part in PARTS:
        wall, cpu = (statistics.median(r["parts"][part][i] for r in runs) for i in (0, 1))
        print(f"{part:<32} {1e6 * wall / rows:7.2f} {1e6 * cpu / rows:11.2f}")
    whole = [1e6 * median(key) / rows for key in ("seconds", "processor_seconds")]
    print(f"{'everything, all threads':<32} {whole[0]:7.2f} {whole[1]:11.2f}")


if __name__ == "__main__":
    main()
