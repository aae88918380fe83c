"""Several extractors on one empty folder, and clocks that are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import shard_bytes
from tests.faults.conftest import ROOT, Bench, Forks, published

FAR_OFF = {"1970": 0, "2106": 2**32, "before 1970": -(10**9)}


@pytest.mark.parametrize("count", [2, 4])
def test_extractors_started_together_make_one_complete_cache(
    count: int, bench: Bench, reference: dict[str, bytes], tmp_path: Path
) -> None:
    """Real processes; each waits, with everything imported, until all are there."""
    out = tmp_path / "out"
    wait = "import os, sys, time, torch, transformers, cli\n"
    wait += "torch.set_num_threads(1)\n"
    wait += "print('ready', flush=True); sys.stdin.readline()\n"
    wait += "cli.main()\n"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", wait, *bench.arguments(out)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
    assert shard_bytes(out) == reference


def test_extractors_that_meet_at_any_call_make_one_complete_cache(
    forks: Forks, bench: Bench, recorded: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    """One stops at its Nth call while another makes the whole cache, and then goes on."""
    whole = shard_bytes(bench.root / "reference")
    calls = [record for record in recorded if record[0] == "call"]
    for nth in range(1, len(calls) + 1):
        out = tmp_path / f"{nth}"
        job = {"folder": str(out), "nth": nth, "fault": ["overtaken", bench.arguments(out)]}
        outcome = forks.run(bench.arguments(out), **job)
        assert (outcome.code, outcome.err) == (0, ""), (nth, calls[nth - 1])
        assert shard_bytes(out) == whole, (nth, calls[nth - 1])


@pytest.mark.parametrize("files", FAR_OFF)
@pytest.mark.parametrize("clock", FAR_OFF)
def test_clocks_and_file_times_far_off_change_nothing(
    files: str, clock: str, forks: Forks, bench: Bench, reference: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = {"folder": str(out), "nth": 30, "fault": ["kill"]}
    forks.run(bench.arguments(out), **job)
    kept = published(out)
    assert len(kept) == 3
    for path in [out, *out.rglob("*")]:
        os.utime(path, (FAR_OFF[files], FAR_OFF[files]))
    outcome = forks.run(bench.arguments(out), clock=FAR_OFF[clock])
    assert (outcome.code, outcome.err) == (0, "")
    assert "1 of 2 shards" in outcome.out
    assert published(out) == reference
