"""Extractors on one cache: how many rows they encode for every row there is.

    python -m tests.benchmarks.bench_together [--workers 2 4 16 64] [--rounds 3] [--json FILE]

Every worker is a process that runs the real extraction, shard by shard, of a tiny encoder that
sleeps: so that 64 of them fit on one machine and meet as often as on 64. They begin at the same
moment. Then the same again while a third of them is killed (SIGKILL) at random times. Counted are
the rows of every batch, those of the killed included. At last one worker alone, with leases and
without, as what they cost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gaam_cache.engines.sharing.lease import Lease, Leases

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.extraction import pipeline as extraction
from gaam_cache.extraction.worker import ShardWorker
from tests.benchmarks._machine import describe
from tests.conftest import build_encoder, random_rows, write_csv
from tests.faults.conftest import published

SHARD_ROWS = 8
BATCH_TOKENS = 12
"""So few that a shard takes several batches."""
SHARDS_PER_SECOND = 25.0
"""Of all workers together; the processors of a small machine manage that."""


class Bench:
    """A data set and an encoder, and what they make without any disturbance."""

    def __init__(self, root: Path, shards: int) -> None:
        self.root = root
        self.rows = shards * SHARD_ROWS
        self.encoder = build_encoder(root / "encoder", "bert", num_layers=1)
        write_csv(root / "train.csv", [("a", "goal"), *random_rows(self.rows - 1, 1, longest=4)])
        self.reference = root / "reference"
        gaam_cache.extract(self.config(self.reference))
        self.number = 0

    def config(self, out: Path) -> ExtractConfig:
        """Of one extraction."""
        return ExtractConfig(
            encoder=str(self.encoder),
            dataset=str(self.root / "train.csv"),
            splits=("train",),
            out=out,
            shard_rows=SHARD_ROWS,
            batch_tokens=BATCH_TOKENS,
            device="cpu",
        )

    def together(self, workers: int, killed: int, seed: int) -> dict[str, float]:
        """Let some work on one folder and kill a part of them.

        Returns:
            Rows encoded for every row there is, and seconds from the start to the last one's end.
        """
        self.number += 1
        folder = self.root / f"{self.number}"
        folder.mkdir()
        shards = self.rows // SHARD_ROWS
        seconds_per_row = workers / SHARDS_PER_SECOND / SHARD_ROWS
        config = self.config(folder / "cache")
        children = []
        for number in range(workers):
            child = os.fork()
            if child == 0:
                run_in_fork(lambda: work(config, folder, number, seconds_per_row))  # noqa: B023
            children.append(child)
        while len(list(folder.glob("ready-*"))) < workers:
            time.sleep(0.05)
        start = time.monotonic()
        (folder / "go").touch()
        generator = random.Random(seed)
        span = 0.8 * shards / SHARDS_PER_SECOND  # so that most are killed at work
        for when, child in sorted(
            (generator.uniform(0, span), child) for child in generator.sample(children, killed)
        ):
            time.sleep(max(0.0, start + when - time.monotonic()))
            os.kill(child, signal.SIGKILL)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        seconds = time.monotonic() - start
        if set(codes) - {0, -signal.SIGKILL} or codes.count(0) < workers - killed:
            raise RuntimeError(f"workers ended with {codes}")
        if published(config.out) != published(self.reference):
            raise RuntimeError("what was published is not what one worker publishes")
        if (config.out / "leases").exists():
            raise RuntimeError("leases were left behind")
        encoded = sum((folder / "rows").read_bytes())
        return {"rows": encoded / self.rows, "seconds": seconds}

    def alone(self) -> float:
        """Seconds of one worker that does not sleep."""
        self.number += 1
        return gaam_cache.extract(self.config(self.root / f"{self.number}")).seconds


def run_in_fork(function: Callable[[], None]) -> None:
    """Run it and end the process, whatever happens."""
    code = 1
    try:
        function()
        code = 0
    finally:
        os._exit(code)


def work(config: ExtractConfig, folder: Path, number: int, seconds_per_row: float) -> None:
    """Extract; every batch takes its time and is noted when it is encoded."""
    load, encode = TextEncoder.load, ShardWorker.encode
    notes = os.open(folder / "rows", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def load_and_wait(encoder: TextEncoder) -> None:
        load(encoder)
        (folder / f"ready-{number}").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)

    def encode_slowly(worker: ShardWorker, shard: Any, inputs: Any, tick: Any) -> Any:
        before = 0

        def slow_tick(done: int) -> None:
            nonlocal before
            time.sleep(seconds_per_row * (done - before))
            os.write(notes, bytes([done - before]))  # one byte: whole, whoever else writes
            before = done
            tick(done)

        return encode(worker, shard, inputs, slow_tick)

    TextEncoder.load, ShardWorker.encode = load_and_wait, encode_slowly  # type: ignore[method-assign]
    gaam_cache.extract(config)


class NoLeases(Leases):
    """Everything is free."""

    def take(self, name: str) -> Lease:
        return Lease(self, name, None)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4, 16, 64])
    parser.add_argument("--shards", type=int, default=0, help="default: 16 for every worker")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"machine": describe(torch.device("cpu")), "together": []}
    print(json.dumps(result["machine"]))
    for workers in arguments.workers:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            bench = Bench(Path(folder), arguments.shards or max(128, 16 * workers))
            for killed in (0, max(1, workers // 3)):
                runs = [bench.together(workers, killed, seed) for seed in range(arguments.rounds)]
                rows = [run["rows"] for run in runs]
                seconds = statistics.median(run["seconds"] for run in runs)
                entry = {"workers": workers, "killed": killed, "rows": rows, "seconds": seconds}
                result["together"].append(entry)
                print(
                    f"{workers:3} workers, {killed:2} killed: "
                    f"{100 * statistics.median(rows):.2f}% of {bench.rows:,} rows encoded "
                    f"(at most {100 * max(rows):.2f}%), {seconds:.1f} s",
                    flush=True,
                )
    with tempfile.TemporaryDirectory(dir=".") as folder:
        bench = Bench(Path(folder), 128)
        seconds_with, seconds_without = [], []
        for _ in range(3 * arguments.rounds):  # in alternation: machines drift
            seconds_with.append(bench.alone())
            extraction.Leases = NoLeases  # type: ignore[misc]
            seconds_without.append(bench.alone())
            extraction.Leases = Leases  # type: ignore[misc]
        more = statistics.median(
            a - b for a, b in zip(seconds_with, seconds_without, strict=True)
        ) / (128 * 1e-3)
        result["lease_ms_per_shard"] = more
        print(f"a lease costs {more:.2f} ms of a worker's time per shard")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
