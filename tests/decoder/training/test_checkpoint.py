"""Unfinished work that is damaged or cut differently costs time and never changes a bit."""

from __future__ import annotations

import itertools
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.common.errors import GaamWarning
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.runs.files import TEST_FILE, VALIDATION_FILE, WEIGHTS_FILE
from gaam_decoder.training import checkpoint

TENSORS = (WEIGHTS_FILE, TEST_FILE, VALIDATION_FILE)


@pytest.fixture(scope="module")
def begun(
    tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainConfig, Path, dict[str, bytes]]:
    """Seeds 0-5 in pairs: the first is done, the second at work, the third not begun; twice.

    The config, the folder that is made again before each damage, and bits without a stop.
    """
    root = tmp_path_factory.mktemp("unfinished")
    config = TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=root / "runs", seeds="0-5", epochs=2, lr=0.01,
        seed_batch=2, compile="off", device="cpu", probe=False,
    )  # fmt: skip
    patch = pytest.MonkeyPatch()
    patch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    patch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))

    def interrupt(done: int, total: int, text: str) -> None:
        if "seeds 2-3 epoch 1" in text:
            raise KeyboardInterrupt

    for one in (config, replace(config, lr=0.02)):
        with pytest.raises(KeyboardInterrupt):
            gaam_decoder.train(one, progress=interrupt)
    patch.undo()
    shutil.copytree(root / "runs", root / "whole")
    [run] = gaam_decoder.train(replace(config, runs=root / "undisturbed"))
    return config, root / "whole", bits(run)


@pytest.fixture(autouse=True)
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that believes a damaged file looks for its seeds again and again."""
    looks, load = itertools.count(), checkpoint.Unfinished.load

    def counted(unfinished: checkpoint.Unfinished) -> Any:
        assert next(looks) < 100, "it looks for seeds that nobody will train"
        return load(unfinished)

    monkeypatch.setattr(checkpoint.Unfinished, "load", counted)


def bits(run: RunResult) -> dict[str, bytes]:
    return {name: (run.path / name).read_bytes() for name in TENSORS}


def restored(config: TrainConfig, whole: Path) -> tuple[Path, Path]:
    """The folder of what was begun by this config, and that of the other rate."""
    shutil.rmtree(config.runs, ignore_errors=True)
    shutil.copytree(whole, config.runs)
    first, second = sorted(config.runs.glob(".*.partial"))
    if not any(b"lr 0.01" in path.read_bytes() for path in first.iterdir()):
        first, second = second, first
    return first, second


HARMS: dict[str, Callable[[Path, Path], object]] = {
    "a bit": lambda path, other: path.write_bytes(
        path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])
    ),
    "cut": lambda path, other: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path, other: path.write_bytes(b""),
    "another group": lambda path, other: shutil.copy(
        next(one for one in path.parent.iterdir() if one != path), path
    ),
    "other runs": lambda path, other: shutil.copy(other / path.name, path),
    "gone": lambda path, other: path.unlink(),
}


@pytest.mark.parametrize("group", range(3))
def test_damage_to_unfinished_work_costs_time_and_never_changes_a_bit(
    group: int, begun: tuple[TrainConfig, Path, dict[str, bytes]]
) -> None:
    """Of the group that is done, the one at work, and the one that is only planned."""
    config, whole, expected = begun
    for harm, do in HARMS.items():
        first, second = restored(config, whole)
        mine = sorted(first.iterdir())[group]
        do(mine, second)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GaamWarning)
            (run,) = gaam_decoder.train(config)
        said = [str(one.message) for one in caught if one.category is GaamWarning]
        assert bits(run) == expected, harm
        assert len(said) == (harm != "gone"), (harm, said)
        assert all(mine.name in one for one in said)
        assert not first.exists(), harm


def trained_together(config: TrainConfig) -> tuple[RunResult, set[str]]:
    seen: list[str] = []
    (run,) = gaam_decoder.train(
        config, progress=lambda done, total, text: seen.append(text)
    )
    return run, {
        found[1] for text in seen if (found := re.search(r"seeds? (\S+) epoch", text))
    }


def test_more_memory_now_makes_no_larger_groups_and_less_makes_smaller_ones(
    begun: tuple[TrainConfig, Path, dict[str, bytes]],
) -> None:
    """The last bits of seeds are those of seeds together."""
    config, whole, expected = begun
    first, _ = restored(config, whole)
    (done,) = (
        path for path in first.iterdir() if b'"done\\": true' in path.read_bytes()
    )
    done.write_bytes(b"")
    with pytest.warns(GaamWarning, match=done.name):
        run, groups = trained_together(replace(config, seed_batch=32))
    assert bits(run) == expected
    assert groups == {"0-1", "2-3", "4-5"}
    assert run.engine["seed_batch"] == 2
    restored(config, whole)
    run, groups = trained_together(replace(config, seed_batch=1))
    assert groups == {"2", "3", "4", "5"}
    assert run.seeds == tuple(range(6))
