"""kill -9 at several points: what is published stays, and the rerun ends with the same bytes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from tests.conftest import shard_bytes

ROOT = Path(__file__).parents[2]


def arguments(config: ExtractConfig) -> list[str]:
    return [
        *("extract", "--encoder", config.encoder, "--dataset", config.dataset),
        *("--out", str(config.out), "--shard-rows", "10", "--batch-tokens", "64"),
    ]


def without_leftovers(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without what a killed writer leaves: temporary files and shards without a receipt."""
    receipts = {name.removesuffix(".json") for name in files if name.endswith(".json")}
    return {
        name: content
        for name, content in files.items()
        if not name.endswith(".tmp")
        and (name.endswith(".json") or name.rpartition("-")[0] in receipts)
    }


@pytest.fixture(scope="session")
def uninterrupted(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        out=tmp_path_factory.mktemp("whole") / "cache",
        shard_rows=10,
        batch_tokens=64,
    )
    gaam_cache.extract(config)
    return shard_bytes(config.out)


# 1 to 4: the plan; then nine calls for every shard (write, rename, folder, receipt, link, ...)
@pytest.mark.parametrize("nth", [1, 2, 4, 5, 6, 9, 11, 17, 30, 44])
def test_killed_extraction_resumes_to_identical_bytes(
    nth: int, tiny_config: ExtractConfig, uninterrupted: dict[str, bytes]
) -> None:
    command = [sys.executable, "-m", "tests.faults.dying_command", str(nth)]
    killed = subprocess.run(
        [*command, *arguments(tiny_config)], cwd=ROOT, capture_output=True, timeout=120
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    published = without_leftovers(shard_bytes(tiny_config.out))
    assert published.items() <= uninterrupted.items()
    gaam_cache.extract(tiny_config)
    after = shard_bytes(tiny_config.out)
    assert published.items() <= after.items()
    assert without_leftovers(after) == uninterrupted
    gaam_cache.open_cache(tiny_config.out)


def test_interrupted_by_ctrl_c_exits_130_and_keeps_shards(
    tiny_config: ExtractConfig, uninterrupted: dict[str, bytes]
) -> None:
    slow = "import time, gaam_cache.encoders.text as t; e = t.TextEncoder.encode; "
    slow += "t.TextEncoder.encode = lambda s, i: (time.sleep(0.2), e(s, i))[1]; "
    slow += "import cli; cli.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", slow, *arguments(tiny_config)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tiny_config.out / "shards" / "train-00001.json").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    published = without_leftovers(shard_bytes(tiny_config.out))
    assert 0 < len(published) < len(uninterrupted)
    gaam_cache.extract(tiny_config)
    assert without_leftovers(shard_bytes(tiny_config.out)) == uninterrupted
