"""Real extractions and trainings by workers of every engine, killed or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome, random_rows, shard_bytes, write_csv
from tests.faults import workers
from tests.faults.conftest import Bench, Forks, published
from tests.faults.test_train import made

ROWS = 96
SEEDS, EPOCHS = 6, 3
Gaam = Callable[..., Outcome]


@pytest.fixture(scope="module")
def alone(forks: Forks, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, the cache of it and runs on that, made by one process."""
    root = tmp_path_factory.mktemp("alone")
    twice = ("a", "goal cup goal")  # which splits share: a warning
    write_csv(root / "data" / "train.csv", [twice, ("b", "bank"), *random_rows(ROWS - 22, 3)])
    write_csv(root / "data" / "test.csv", [twice, *random_rows(19, 4)])
    for command in (extraction(bench, root, root / "cache"), training(root, root / "runs")):
        outcome = forks.run([*command, "--quiet"])
        assert outcome.code == 0, outcome.err
    return root


def extraction(bench: Bench, root: Path, out: Path) -> list[str]:
    places = ("--encoder", bench.encoder, "--dataset", root / "data", "--out", out)
    more = "--set shard-rows=8 --set batch-tokens=32 --device cpu"
    return ["extract", *map(str, places), *more.split()]


def training(root: Path, runs: Path) -> list[str]:
    places = ("--cache", root / "cache", "--runs", runs)
    more = f"--attn layer-mean --attn gaam --seeds {SEEDS} --epochs {EPOCHS} --set seed-batch=2"
    more += " --batch-size 8 --set compile=off --no-probe --device cpu"
    return ["train", *map(str, places), *more.split()]


@pytest.fixture(autouse=True)
def _orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaam_cache.extraction.workers.work", workers.extract)
    monkeypatch.setattr("gaam_decoder.training.train._work", workers.train)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the bits of one thread, on any machine
    monkeypatch.setattr("gaam_cache.engines.local._cores", lambda: [0, 1])


def after_deaths(err: str) -> list[str]:
    """Warnings but for one of a worker that died."""
    warnings = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert [line for line in err.splitlines() if not line.startswith("warning: ")] == []
    died = [line for line in warnings if "died without a word" in line]
    assert len(died) <= 1
    return [line for line in warnings if line not in died]


def cases(most: int) -> list[Any]:
    """After how many batches or epochs of all workers one is killed; there are ``most``."""
    rarely = [("local", number) for number in (1, 2, 5, 11, most)]
    rarely += [("ray", number) for number in (None, 1, 5)]
    often = [("local", None), ("local", 2 * most // 3), ("ray", 2 * most // 3)]
    return [*often, *[pytest.param(*case, marks=pytest.mark.slow) for case in rarely]]


@pytest.mark.parametrize(("engine", "killed_at"), cases(24), indirect=["engine"])
def test_workers_make_the_bytes_of_one_and_encode_every_row_once(
    engine: str, killed_at: int | None, gaam: Gaam, bench: Bench, alone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    notes = workers.order(out, killed_at)
    crew = ("--engine", engine, "--devices", "2")
    outcome = gaam(*extraction(bench, alone, out), *crew, "--quiet")
    assert outcome.code == 0, outcome.err
    assert workers.was_killed(out) == (killed_at is not None)
    assert published(out) == shard_bytes(alone / "cache")
    assert {path.name for path in out.iterdir()} == {"cache.json", "shards"}
    warned = after_deaths(outcome.err)
    assert len(warned) == 1
    assert "have a text that 'train' has too" in warned[0]
    assert ROWS <= sum(notes.read_bytes()) <= ROWS + (0 if killed_at is None else 3 * 8)


@pytest.mark.parametrize(("engine", "killed_at"), cases(18), indirect=["engine"])
def test_workers_train_the_bits_of_one_and_every_seed_once(
    engine: str, killed_at: int | None, gaam: Gaam, alone: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    notes = workers.order(runs, killed_at)
    crew = ("--engine", engine, "--devices", "2")
    outcome = gaam(*training(alone, runs), *crew, "--quiet")
    assert outcome.code == 0, outcome.err
    assert workers.was_killed(runs) == (killed_at is not None)
    assert made(runs) == made(alone / "runs")
    assert not list(runs.glob(".*"))
    assert after_deaths(outcome.err) == []
    whole = 2 * SEEDS * EPOCHS
    assert whole <= sum(notes.read_bytes()) <= whole + (0 if killed_at is None else 2)
