"""How far trainings are, told while others train."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.errors import NotFoundError
from gaam_decoder import TrainConfig
from gaam_decoder.status import status
from gaam_decoder.unfinished import checkpoint


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))
    return TrainConfig(
        cache=tiny_cache,
        runs=tmp_path / "runs",
        attn=("gaam", "none"),
        seeds=tuple(range(5)),
        seed_batch=2,
        epochs=3,
        compile="off",
        device="cpu",
        probe=False,
    )


def stop_after(calls: int) -> Callable[[int, int, str], None]:
    count = 0

    def report(done: int, total: int, text: str) -> None:
        nonlocal count
        count += 1
        if count == calls:
            raise KeyboardInterrupt

    return report


def test_every_moment_of_a_training_adds_up(config: TrainConfig) -> None:
    """Stopped after every report: what is finished, at work and left is all that was planned."""
    seen: set[tuple[int, int, int]] = set()
    for calls in range(2, 40):
        runs = config.runs / str(calls)
        try:
            gaam_decoder.train(replace(config, runs=runs), progress=stop_after(calls))
        except KeyboardInterrupt:
            pass
        else:
            break
        if not runs.exists() or not any(runs.iterdir()):
            continue
        found = status(runs)
        for work in found.begun:
            left = [seed for group in work.groups for seed in group.seeds]
            assert sorted(left + work.done) == work.planned == list(config.seeds)
            assert work.epochs == config.epochs
            assert all(0 <= group.epoch <= work.epochs for group in work.groups)
            assert str(len(work.done)) in found.in_words()
        assert all(not one.dead for one in found.at_work)
        seen.add((found.runs, len(found.begun), sum(len(work.done) for work in found.begun)))
        assert json.loads(json.dumps(found.to_dict()))["runs"] == found.runs
    else:
        pytest.fail("it never ended")
    assert {runs for runs, _, _ in seen} >= {0, 1}
    assert {done for _, _, done in seen} >= {0, 2, 4}


def test_looking_changes_nothing(config: TrainConfig) -> None:
    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, progress=stop_after(6))

    def content() -> dict[str, Any]:
        files = [path for path in config.runs.rglob("*") if path.is_file()]
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = content()
    assert not status(config.runs).complete
    assert content() == before
    # what is damaged is for whoever goes on to say
    for path in config.runs.glob(".*.partial/*"):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        status(config.runs)
        path.write_bytes(whole)
    gaam_decoder.train(config)
    found = status(config.runs)
    assert (found.complete, found.runs, found.seeds) == (True, 2, 10)


def test_a_folder_without_anything_is_said_to_be_one(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotFoundError, match="nothing was trained"):
            status(folder)
