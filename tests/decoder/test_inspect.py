"""``gaam inspect`` of runs says what is there, and how far what is begun is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.engines._claims import Claims, this_process
from gaam_cache.errors import NotFoundError
from gaam_decoder import TrainConfig
from gaam_decoder.inspect import inspect
from gaam_decoder.runs.folders import CLAIM_FOLDER
from gaam_decoder.training import checkpoint

DEAD = 2**22 + 1
"""No process has this number."""


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))
    return TrainConfig(lr=3e-4,
        cache=tiny_cache, runs=tmp_path / "runs", attn=("gaam", "none"), seeds=tuple(range(5)),
        seed_batch=2, epochs=3, compile="off", device="cpu", probe=False,
    )  # fmt: skip


def stop_after(calls: int) -> Callable[[int, int, str], None]:
    count = 0

    def report(done: int, total: int, text: str) -> None:
        nonlocal count
        count += 1
        if count == calls:
            raise KeyboardInterrupt

    return report


def content(folder: Path) -> dict[str, Any]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_every_moment_of_a_training_adds_up_and_looking_changes_nothing(
    config: TrainConfig,
) -> None:
    """Stopped after every third report: what is finished and what is left is what was planned."""
    seen: set[tuple[int, int]] = set()
    for calls in range(3, 40, 3):
        runs = config.runs / str(calls)
        try:
            gaam_decoder.train(replace(config, runs=runs), progress=stop_after(calls))
        except KeyboardInterrupt:
            pass
        else:
            break
        before = content(runs)
        found = inspect(runs)
        assert content(runs) == before
        about = json.loads(json.dumps(found.to_dict()))
        for work in about["begun"]:
            left = [seed for group in work["groups"] for seed in group["seeds"]]
            assert sorted(left + work["done"]) == work["planned"] == list(config.seeds)
            assert all(0 <= group["epoch"] <= work["epochs"] == 3 for group in work["groups"])
        assert not found.complete
        assert found.in_words()
        seen.add((len(about["runs"]), sum(len(work["done"]) for work in about["begun"])))
    else:
        pytest.fail("it never ended")
    assert {count for count, _ in seen} >= {0, 1}
    assert {done for _, done in seen} >= {0, 2}


def test_who_is_at_work_and_what_is_damaged_is_told(config: TrainConfig) -> None:
    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, progress=stop_after(6))
    claim = inspect(config.runs).to_dict()["begun"][0]["groups"][0]["claim"]
    for pid in (this_process().pid, DEAD):
        us = this_process()._replace(pid=pid)
        with Claims(config.runs / CLAIM_FOLDER, us=us) as claims:
            claims.take(claim)
            found = inspect(config.runs)
        (held,) = found.to_dict()["at_work"]
        assert (held["name"], held["process"], held["dead"]) == (claim, pid, pid == DEAD)
        assert str(pid) in found.in_words()
    gaam_decoder.train(config)
    found = inspect(config.runs)
    assert (found.complete, found.damage, len(found.to_dict()["runs"])) == (True, [], 2)
    run = next(config.runs.glob("gaam*"))
    assert inspect(run).to_dict()["attention"] == "gaam:heads=2"
    (run / "run.json").unlink()
    found = inspect(config.runs)
    assert [Path(one["path"]) for one in found.damage] == [run]
    assert len(found.to_dict()["runs"]) == 1
    for folder in (config.runs.parent / "nowhere", run.parents[1] / "empty"):
        with pytest.raises(NotFoundError):
            inspect(folder)
