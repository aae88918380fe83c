"""``gaam inspect`` of runs says what is there, and how far what is begun is."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

import gaam_decoder
from gaam_cache.common.errors import NotFoundError
from gaam_decoder import TrainConfig
from gaam_decoder.inspect import inspect
from gaam_decoder.runs.folders import LEASE_FOLDER
from gaam_decoder.training import checkpoint

DEAD = 2**22 + 1  # no process has this number


def test_who_is_at_work_and_what_is_damaged_is_told(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))
    config = TrainConfig(
        lr=3e-4, cache=tiny_cache, runs=tmp_path / "runs", attn=("gaam", "none"), seeds=5,
        seed_batch=2, epochs=3, compile="off", device="cpu", probe=False,
    )  # fmt: skip
    count, claims, seen = itertools.count(1), config.runs / LEASE_FOLDER, []

    def stop(done: int, total: int, text: str) -> None:
        if next(count) == 6:
            (claim,) = claims.iterdir()
            seen.append((claim, json.loads(claim.read_text()), inspect(config.runs)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, progress=stop)
    begun = inspect(config.runs).to_dict()["runs"][0]
    left = [seed for group in begun["groups"] for seed in group["seeds"]]
    assert sorted(left + begun["done"]) == begun["planned"] == list(config.seeds)
    ((claim, holder, found),) = seen
    claim.write_text(json.dumps(holder | {"pid": DEAD}))
    for pid, told in ((os.getpid(), found), (DEAD, inspect(config.runs))):
        (held,) = told.to_dict()["at_work"]
        assert (held["name"], held["process"], held["dead"]) == (
            claim.stem,
            pid,
            pid == DEAD,
        )
    assert claim.stem in [group["claim"] for group in begun["groups"]]
    gaam_decoder.train(config)
    found = inspect(config.runs)
    assert (found.complete, found.damage, len(found.to_dict()["runs"])) == (True, [], 2)
    run = next(config.runs.glob("gaam*"))
    assert inspect(run).to_dict()["attention"] == "gaam:heads=2"
    (run / "run.json").unlink()
    found = inspect(config.runs)
    assert [one["state"] for one in found.to_dict()["runs"]] == ["damaged", "finished"]
    with pytest.raises(NotFoundError):
        inspect(tmp_path)
