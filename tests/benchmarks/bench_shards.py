"""What very many shards cost: a cache of 10,000 and one of 100,000, each shard of two rows.

    python -m tests.benchmarks.bench_shards [--shards 10000 100000] [--rounds 3] [--json FILE]

The shards are valid and tiny, so that what is timed is what a shard costs however large it is: its
receipt, its names, its place in lists. Each step runs in a process of its own, with the files in
the page cache; beside them the bare work that none can do without: listing the folder, and reading
and looking up every receipt.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks._machine import describe
from tests.cache.published import write_many


def bare_listing(cache: Path) -> None:
    """Names of all files."""
    assert os.listdir(cache / "shards")  # noqa: PTH208


def bare_receipts(cache: Path) -> None:
    """Every receipt read and every shard file looked up, without any check."""
    for name in os.listdir(cache / "shards"):  # noqa: PTH208
        path = f"{cache}/shards/{name}"
        if name.endswith(".json"):
            with open(path, "rb") as file:  # noqa: PTH123
                json.loads(file.read())
        else:
            os.lstat(path)


def open_it(cache: Path) -> None:
    """``open_cache``."""
    import gaam_cache

    gaam_cache.open_cache(cache)


def resume(cache: Path) -> None:
    """What ``gaam extract`` does with a cache that is there, before it loads the encoder."""
    from gaam_cache.engines.lease import Leases
    from gaam_cache.engines.undone import CLAIM_FOLDER, order_of_work

    from gaam_cache.extraction.repair import discard_broken
    from gaam_cache.store.plan import adopt_plan, read_plan
    from gaam_cache.store.shard import missing_shards

    plan = adopt_plan(cache, read_plan(cache).fingerprint_fields)
    assert not discard_broken(cache, plan)
    missing = set(missing_shards(cache, plan))
    todo = order_of_work([s for s in plan.shards() if s.name in missing], alone=True)
    if not todo:
        Leases(cache / CLAIM_FOLDER).clear({shard.name for shard in plan.shards()})


def inspect(cache: Path) -> None:
    """``gaam inspect``."""
    import gaam_cache.inspect

    assert gaam_cache.inspect.inspect(cache).complete


def verify_quick(cache: Path) -> None:
    """``gaam verify --quick``."""
    import gaam_cache

    assert gaam_cache.verify(cache, quick=True).good


def verify(cache: Path) -> None:
    """``gaam verify``."""
    import gaam_cache

    assert gaam_cache.verify(cache).good


STEPS: dict[str, Callable[[Path], None]] = {
    "bare listing": bare_listing,
    "bare receipts": bare_receipts,
    "open": open_it,
    "resume, complete": resume,
    "resume, 99% there": resume,
    "verify --quick": verify_quick,
    "verify": verify,
    "inspect, memory empty": inspect,
}
IMPORTED = ("gaam_cache", "gaam_cache.inspect", "gaam_cache.extraction.repair", "torch")
PROGRAM = """
import importlib, json, os, sys, time
for name in {imported!r}:
    importlib.import_module(name)
import gaam_cache
gaam_cache.verify, gaam_cache.open_cache
from pathlib import Path
from tests.benchmarks.bench_shards import STEPS
def memory(line):  # unlike ru_maxrss not that of the process before
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith(line))
before = memory("VmRSS")
start, processor = time.perf_counter(), sum(os.times()[:4])
STEPS[sys.argv[1]](Path(sys.argv[2]))
seconds, processor = time.perf_counter() - start, sum(os.times()[:4]) - processor
print(json.dumps([seconds, processor, (memory("VmHWM") - before) / 1024]))
"""


def timed(step: str, cache: Path, user: Path) -> list[float]:
    """Seconds, processor seconds and megabytes of a step, in a process of its own."""
    shutil.rmtree(user, ignore_errors=True)  # nothing is remembered
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(imported=IMPORTED), step, str(cache)],
        env={**os.environ, "XDG_CACHE_HOME": str(user)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: list[float] = json.loads(done.stdout)
    return found


def measure(shards: int, rounds: int, folder: Path) -> dict[str, Any]:
    """All steps on one cache."""
    cache = folder / f"cache-{shards}"
    start = time.perf_counter()
    write_many(cache, shards)
    found: dict[str, Any] = {"shards": shards, "written_in": time.perf_counter() - start}
    receipts = list((cache / "shards").glob("*.json"))
    found["receipt_bytes"] = statistics.mean(path.stat().st_size for path in receipts)
    steps = {name: [] for name in STEPS}  # type: dict[str, list[list[float]]]
    for _ in range(rounds):
        for name, runs in steps.items():
            if "99%" not in name:
                runs.append(timed(name, cache, folder / "user"))
    for path in sorted(receipts)[::100]:
        path.unlink()
    for _ in range(rounds):
        steps["resume, 99% there"].append(timed("resume, 99% there", cache, folder / "user"))
    found["steps"] = {
        name: [statistics.median(run[i] for run in runs) for i in range(3)]
        for name, runs in steps.items()
    }
    shutil.rmtree(cache)
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe(torch.device("cpu"))
    print(json.dumps(machine))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for shards in arguments.shards:
            found = measure(shards, arguments.rounds, Path(folder))
            results.append(found)
            print(
                f"{shards:,} shards, written in {found['written_in']:.0f} s, "
                f"{found['receipt_bytes']:,.0f} bytes a receipt"
            )
            bare = found["steps"]["bare receipts"][0]
            for name, (seconds, processor, megabytes) in found["steps"].items():
                print(
                    f"  {name:<22} {seconds:8.2f} s {processor:8.2f} s of a processor "
                    f"{1e6 * processor / shards:7.0f} us a shard "
                    f"x{seconds / bare:5.1f} bare receipts {megabytes:6.0f} MB"
                )
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "results": results}, indent=2))


if __name__ == "__main__":
    main()
