"""More shards than a process may open files, or map memory: the number of shards is no limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cache.published import number_everywhere, write_cache

READ = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import numpy as np
import torch
import gaam_cache
from gaam_decoder.training import data as features

train = gaam_cache.open_cache(sys.argv[1])["train"]
assert (train.labels == np.arange(len(train)) % 2).all()
assert (train.num_tokens == 1 + np.arange(len(train)) % 9).all()
array = features.Features(train.embeddings, torch.device("cpu"), "disk")
rows = np.random.default_rng(0).integers(0, len(train), (2, 1500))
for number, batch in enumerate(array.batches(rows, 50)):
    expected = rows[:, 50 * number : 50 * number + 50] % 1000
    assert (batch.numpy()[..., 0, 0] == expected).all()
    assert (batch.numpy()[..., 1, 1] == -expected).all()
assert (train.embeddings[:][:, 0, 0] == np.arange(len(train)) % 1000).all()
found = gaam_cache.verify(sys.argv[1])
assert found.good and found.rows == len(train), found.bad[:3]
"""


def test_300_shards_with_64_open_files(tmp_path: Path) -> None:
    write_cache(tmp_path / "cache", {"train": 300 * 3 - 1}, 2, 2, number_everywhere, shard_rows=3)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "cache")],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(tmp_path / "user")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
