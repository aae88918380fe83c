"""A training that goes on with fewer seeds together, as after one that ran out of memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.training import checkpoint
from gaam_decoder.training.checkpoint import look


@pytest.mark.parametrize(("first", "then", "stopped"), [(4, 1, 3), (3, 2, 4), (None, 1, 5)])
def test_seeds_together_are_as_many_as_are_asked_for_now(
    first: int | None,
    then: int,
    stopped: int,
    tiny_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))
    config = TrainConfig(
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=tuple(range(6)),
        seed_batch=first,
        epochs=4,
        compile="off",
        device="cpu",
        probe=False,
    )
    count = 0

    def stop(done: int, total: int, text: str) -> None:
        nonlocal count
        count += 1
        if count == stopped:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, progress=stop)
    left = {seed for work in look(config.runs) for g in work["groups"] for seed in g["seeds"]}
    said: list[str] = []
    (run,) = gaam_decoder.train(
        replace(config, seed_batch=then), progress=lambda done, total, text: said.append(text)
    )
    assert sorted(run.seeds) == list(config.seeds)
    assert not list(config.runs.glob(".*"))
    groups = {text.split(" epoch ")[0].rsplit("seed", 1)[1] for text in said if " epoch " in text}
    trained: set[int] = set()
    for group in groups:
        ends = [int(number) for number in group.removeprefix("s").replace("-", " ").split()]
        seeds = range(ends[0], ends[-1] + 1)
        assert len(seeds) <= then
        trained |= set(seeds)
    assert trained == left
    alone = gaam_decoder.train(replace(config, runs=tmp_path / "alone", seed_batch=then))[0]
    assert run.accuracy == pytest.approx(alone.accuracy, abs=0.05)
