"""Several extractors on one empty folder, and clocks that are wrong."""

from __future__ import annotations

import fcntl
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import random_rows, shard_bytes, write_csv
from tests.faults.conftest import Bench, Forks, published

FAR_OFF = {"1970": 0, "2106": 2**32, "before 1970": -(10**9)}


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize("count", [2, 4])
def test_extractors_started_together_make_one_complete_cache(
    count: int, attempt: int, forks: Forks, bench: Bench, tmp_path: Path
) -> None:
    whole = shard_bytes(bench.root / "reference")
    out, lock = tmp_path / "out", tmp_path / "lock"
    with lock.open("w") as held, ThreadPoolExecutor(count) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = [
            pool.submit(forks.run, bench.arguments(out), lock=str(lock)) for _ in range(count)
        ]
        deadline = time.monotonic() + 600  # a hang
        while len(list(tmp_path.glob("lock.*"))) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        fcntl.flock(held, fcntl.LOCK_UN)
        outcomes = [future.result() for future in running]
    assert [(outcome.code, outcome.err) for outcome in outcomes] == [(0, "")] * count
    assert shard_bytes(out) == whole


def test_extractors_that_meet_at_any_call_keep_whatever_was_published_first(
    forks: Forks, bench: Bench, recorded: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    """One stops at its Nth call while another, whose bytes differ, makes all that is missing.

    The other takes over the leases of the first, which is alive: what is published stays right.
    """
    ours = shard_bytes(bench.root / "reference")
    assert forks.run(bench.arguments(tmp_path / "other"), other_machine=True).code == 0
    theirs = shard_bytes(tmp_path / "other")
    assert ours.keys() & theirs.keys() == {name for name in ours if name.endswith(".json")}
    calls = [(operation, path) for source, operation, path in recorded if source == "call"]

    def meet(nth: int) -> None:
        out = tmp_path / f"{nth}"
        other = {"arguments": bench.arguments(out), "other_machine": True, "impatient": True}
        note = tmp_path / f"{nth}.json"
        fault = ["overtaken", forks.address, other, str(note)]
        outcome = forks.run(bench.arguments(out), folder=str(out), nth=nth, fault=fault)
        assert (outcome.code, outcome.err) == (0, ""), (nth, calls[nth - 1])
        # threads take turns: the nth call is not always that of the record, nor is there always one
        alone = {"path": "", "there": ["train-00000.json", "test-00000.json"]}
        struck = json.loads(note.read_text()) if note.exists() else alone
        found = shard_bytes(out)
        assert found.pop("cache.json") == ours["cache.json"]
        for shard in ("train-00000", "test-00000"):
            first = ours if f"{shard}.json" in struck["there"] else theirs
            made = {name: found.pop(name) for name in [*found] if f"shards/{shard}" in name}
            whole = [
                {name: who[name] for name in who if f"shards/{shard}" in name}
                # while one thread was stopped at a lease, another of ours went on
                for who in ([ours, theirs] if "leases" in struck["path"] else [first])
            ]
            assert made in whole, (nth, struck)
        assert not found
        assert not (out / "leases").exists()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(meet, range(1, len(calls) + 1)))


@pytest.mark.parametrize("files", FAR_OFF)
@pytest.mark.parametrize("clock", FAR_OFF)
def test_clocks_and_file_times_far_off_change_nothing(
    files: str, clock: str, forks: Forks, bench: Bench, reference: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # links: the plan, a probe, two leases, a receipt, and the one that is not made any more
    job = {"folder": str(out), "nth": 6, "operations": ["link"], "fault": ["kill"]}
    forks.run(bench.arguments(out), **job)
    kept = published(out)
    assert len(kept) == 3
    for path in [out, *out.rglob("*")]:
        os.utime(path, (FAR_OFF[files], FAR_OFF[files]))
    outcome = forks.run(bench.arguments(out), clock=FAR_OFF[clock])
    assert (outcome.code, outcome.err) == (0, "")
    assert "1 of 2 shards" in outcome.out
    assert published(out) == reference


@pytest.mark.parametrize("killed", [0, 1, 2])
def test_extractors_that_work_together_make_every_shard_once(
    killed: int, forks: Forks, bench: Bench, tmp_path: Path
) -> None:
    """Killed is whoever notes the end of a certain batch: at most what he had in work is lost."""
    data = tmp_path / "data"
    write_csv(data / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(190, 3)])
    arguments = ["extract", "--encoder", str(bench.encoder), "--dataset", str(data)]
    arguments += ["--split", "train", "--set", "shard-rows=8", "--set", "batch-tokens=32"]
    arguments += ["--device", "cpu", "--out"]
    assert forks.run([*arguments, str(tmp_path / "alone")]).code == 0
    whole = shard_bytes(tmp_path / "alone")
    notes = tmp_path / "notes"
    jobs = [{"notes": str(notes), "dies_after": 12 if n < killed else None} for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(
            pool.map(lambda job: forks.run([*arguments, str(tmp_path / "out")], **job), jobs)
        )
    assert sorted(outcome.code for outcome in outcomes) == [-9] * killed + [0] * (4 - killed)
    assert published(tmp_path / "out") == whole
    assert not (tmp_path / "out" / "leases").exists()
    encoded = sum(notes.read_bytes())
    assert 192 <= encoded <= 192 + 3 * 8 * killed
