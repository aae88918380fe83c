"""A compiler that fails, and a cache that is larger than the memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gaam_cache.common.errors import GaamWarning
from gaam_cache.store.plan import ShardSpec
from gaam_decoder.training.arithmetic import engine
from tests.cache.published import write_cache
from tests.decoder.configs import train_config, train_single_run

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_compiler_that_fails_is_a_warning_and_the_training_goes_on(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def no_missing_compiler(device_type: str) -> None:
        return None

    def fail() -> str:
        raise InvalidCxxCompiler

    config = train_config(
        tiny_cache,
        tmp_path / "runs",
        attn=("gaam",),
        seeds=(0, 1),
        epochs=2,
        lr=0.01,
    )
    expected = train_single_run(config)
    monkeypatch.setattr(engine, "missing_compiler", no_missing_compiler)
    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", fail)
    # The patch is torch's own: what monkeypatch would restore, torch has no more, and
    # nothing would compile ever after.
    compiler_settings: Any = torch.compiler.config
    with (
        compiler_settings.patch(force_disable_caches=True),
        pytest.warns(GaamWarning, match="cxx"),
    ):
        run = train_single_run(config, compile="on", runs=tmp_path / "forced")
    assert run.engine["compiled"] is False
    np.testing.assert_array_equal(run.logits, expected.logits)


MEBIBYTE = 2**20
ROOM = 280 * MEBIBYTE
SPLIT_BYTES = 420 * MEBIBYTE
NUM_LAYERS = 12
HIDDEN_SIZE = 2048
LIMITED = """
import json, resource, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.training import data as features
from gaam_decoder.training.arithmetic import step

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(name + ":")]
    return int(line.split()[1]) * 1024

def watch(done, total, text):
    global most
    most = max(most, status("RssAnon") - before)

step.keep_freed_memory = lambda: None
tiny = Path(sys.argv[1])
runs = Path(sys.argv[2])
room = int(sys.argv[3])
big = Path(sys.argv[4])
options = dict(attn=("layer-mean",), epochs=1, seeds=(0, 1), select="last")
options |= dict(compile="off")
gaam_decoder.train(TrainConfig(cache=tiny, runs=runs / "warm", **options))
limit = status("VmData") + room
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
features.free_bytes = lambda device: room
before = status("RssAnon")
most = 0
options |= dict(test_split="train", allow_train_as_test=True)
config = TrainConfig(cache=big, runs=runs, **options)
run = gaam_decoder.train(config, progress=watch)[0]
print(json.dumps({"growth": most, "data": run.engine["data"]}))
"""
"""A program that trains on a tiny cache, and on a big one with little memory left."""


def write_big_cache(folder: Path) -> None:
    """A training split of 420 MiB, whose states are drawn once: any will do."""
    generator = np.random.default_rng(0)
    shape = (2048, NUM_LAYERS, HIDDEN_SIZE)
    x_NLD = generator.standard_normal(shape, np.float32).astype(np.float16)

    def states(shard: ShardSpec) -> NDArray[np.float16]:
        return x_NLD[: shard.num_rows]

    row_bytes = NUM_LAYERS * HIDDEN_SIZE * 2
    rows = {"train": SPLIT_BYTES // row_bytes}
    write_cache(folder, rows, NUM_LAYERS, HIDDEN_SIZE, states)


@pytest.mark.slow
def test_a_cache_larger_than_memory_trains_at_flat_memory(
    tiny_cache: Path, tmp_path: Path
) -> None:
    """280 MiB of room beside a split of 420 MiB: rows stay on disk; little is added.

    Large blocks have mappings of their own here, and go when they are freed: what is
    counted is in use. What the C library keeps depends on how threads take turns.
    """
    big = tmp_path / "big"
    write_big_cache(big)
    arguments = [str(tiny_cache), str(tmp_path / "runs"), str(ROOM), str(big)]
    process = subprocess.run(
        [sys.executable, "-c", LIMITED, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "MALLOC_MMAP_THRESHOLD_": str(MEBIBYTE),
        },
    )
    assert process.returncode == 0, process.stderr
    answer = json.loads(process.stdout)
    assert answer["data"] == "disk"
    assert answer["growth"] < 100 * MEBIBYTE
