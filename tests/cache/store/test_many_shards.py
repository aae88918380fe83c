"""More shards than a process may open files, or map memory: the number of shards is no limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cache.published import number_everywhere, write_cache, write_many
from tests.conftest import shard_bytes

ROOT = Path(__file__).parents[3]
READ = """
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
import numpy as np
import torch
import gaam_cache
from gaam_decoder.training import features

seconds = {}
def timed(name, function):
    start = time.perf_counter()
    result = function()
    seconds[name] = time.perf_counter() - start
    return result

cache = timed("open", lambda: gaam_cache.open_cache(sys.argv[1]))
train = cache["train"]
labels = timed("labels, first", lambda: train.labels)
assert (labels == np.arange(len(train)) % 2).all()
assert (train.num_tokens == 1 + np.arange(len(train)) % 9).all()
again = gaam_cache.open_cache(sys.argv[1])["train"]
assert (timed("labels, again", lambda: again.labels) == labels).all()
array = features.Features(train.embeddings, torch.device("cpu"), "disk")
rows = np.random.default_rng(0).integers(0, len(train), (2, 1500))
for number, batch in enumerate(array.batches(rows, 50)):
    expected = rows[:, 50 * number : 50 * number + 50] % 1000
    assert (batch.numpy()[..., 0, 0] == expected).all()
    assert (batch.numpy()[..., 1, 1] == -expected).all()
whole = timed("all states", lambda: train.embeddings[:])
assert (whole[:, 0, 0] == np.arange(len(train)) % 1000).all()
found = timed("verify", lambda: gaam_cache.verify(sys.argv[1]))
assert found.good and found.rows == len(train), found.bad[:3]
print(json.dumps(seconds))
"""


def read_under(cache: Path, open_files: int, **environment: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(cache), str(open_files)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def test_300_shards_with_64_open_files(tmp_path: Path) -> None:
    write_cache(tmp_path / "cache", {"train": 300 * 3 - 1}, 2, 2, number_everywhere, shard_rows=3)
    read_under(tmp_path / "cache", 64, XDG_CACHE_HOME=str(tmp_path / "user"))


def test_the_quick_writer_writes_what_the_real_one_does(tmp_path: Path) -> None:
    write_many(tmp_path / "quick", 20)
    write_cache(tmp_path / "real", {"train": 40}, 2, 2, number_everywhere, shard_rows=2)
    assert shard_bytes(tmp_path / "quick") == shard_bytes(tmp_path / "real")


@pytest.mark.slow
def test_100000_shards_with_256_open_files(tmp_path: Path) -> None:
    write_many(tmp_path / "cache", 100_000)
    seconds = read_under(tmp_path / "cache", 256, XDG_CACHE_HOME=str(tmp_path / "user"))
    print({name: round(value, 2) for name, value in seconds.items()})
