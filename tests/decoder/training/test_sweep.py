"""What a sweep consists of: products, folds, plans, data that do not fit, no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.common.errors import GaamWarning
from gaam_decoder import TrainConfig
from gaam_decoder.training.arithmetic import engine
from tests.cache.published import write_cache

ROOT = Path(__file__).parents[3]


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1),
        epochs=2,
        lr=0.01,
        probe=False,
    )


def test_a_compiler_that_fails_is_a_warning_and_the_training_goes_on(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def fail() -> str:
        raise InvalidCxxCompiler

    expected = gaam_decoder.train(config)[0]
    monkeypatch.setattr(engine, "missing_compiler", lambda device_type: None)
    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", fail)
    forced = replace(config, compile="on", runs=config.runs / "forced")
    # not by monkeypatch: what that restores, torch has no more, and nothing compiles ever after
    with (
        torch.compiler.config.patch(force_disable_caches=True),
        pytest.warns(GaamWarning, match="cxx"),
    ):
        run = gaam_decoder.train(forced)[0]
    assert run.engine["compiled"] is False
    np.testing.assert_array_equal(run.logits, expected.logits)


LIMITED = """
import json, resource, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.training import data as features
from gaam_decoder.training.arithmetic import step
step.keep_freed_memory = lambda: None
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(name + ":")) * 1024
cache, runs, room, big = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
options = dict(attn=("layer-mean",), epochs=1, seeds=(0, 1), select="last", compile="off")
gaam_decoder.train(TrainConfig(cache=cache, runs=runs / "warm", **options))
used = status("VmData")
resource.setrlimit(resource.RLIMIT_DATA, (used + room, used + room))
features.free_on = lambda device: room
before, most = status("RssAnon"), [0]
def watch(done, total, text):
    most[0] = max(most[0], status("RssAnon") - before)
options |= {"test_split": "train", "allow_train_as_test": True}
run = gaam_decoder.train(TrainConfig(cache=big, runs=runs, **options), progress=watch)[0]
print(json.dumps({"grown": most[0], "data": run.engine["data"]}))
"""


@pytest.mark.slow
def test_a_cache_larger_than_memory_trains_at_flat_memory(
    tiny_cache: Path, tmp_path: Path
) -> None:
    """280 MiB of room beside a split of 420 MiB: the rows stay on disk, and little is added.

    Large blocks have mappings of their own here, and go when they are freed: what is counted is
    what is in use, not what the C library keeps, which depends on how threads take turns.
    """
    layers, hidden_size = 12, 2048
    big = tmp_path / "big"
    count = 420 * 2**20 // (layers * hidden_size * 2)
    # drawn once: what is measured does not depend on the numbers
    generator = np.random.default_rng(0)
    x_NLD = generator.standard_normal((2048, layers, hidden_size), np.float32).astype(
        np.float16
    )
    write_cache(
        big,
        {"train": count},
        layers,
        hidden_size,
        lambda shard: x_NLD[: shard.stop - shard.start],
    )
    room = 280 * 2**20
    command = [
        sys.executable,
        "-c",
        LIMITED,
        tiny_cache,
        tmp_path / "runs",
        str(room),
        big,
    ]
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(2**20)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["data"] == "disk"
    assert found["grown"] < 100 * 2**20
