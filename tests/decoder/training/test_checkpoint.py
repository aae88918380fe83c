"""Unfinished work that is damaged costs time and never changes a bit."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import gaam_decoder
from gaam_cache import devices
from gaam_cache.cache import open_cache
from gaam_cache.errors import GaamWarning
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.runs.result import TEST_FILE, VALIDATION_FILE, WEIGHTS_FILE
from gaam_decoder.training import checkpoint
from gaam_decoder.training.grid import plan_items

TENSORS = (WEIGHTS_FILE, TEST_FILE, VALIDATION_FILE)


class Place:
    """A folder of runs that is made again before each damage."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.runs = root / "runs"
        self.whole = root / "whole"
        self.config = TrainConfig(
            attn=("gaam", "none"),
            cache=cache,
            runs=self.runs,
            seeds=(0, 1),
            epochs=2,
            lr=0.01,
            seed_batch=2,
            compile="off",
            device="cpu",
        )

        self.made: list[Path] = []

    def keep(self) -> None:
        """What lies in the runs now is what ``restore`` makes."""
        shutil.copytree(self.runs, self.whole)

    def restore(self) -> None:
        shutil.rmtree(self.runs, ignore_errors=True)
        shutil.copytree(self.whole, self.runs)


@pytest.fixture(scope="module")
def unfinished(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Seeds 0-5 in pairs: the first is done, the second at work, the third not begun; twice."""
    place = Place(tmp_path_factory.mktemp("unfinished"), tiny_cache)
    place.config = replace(place.config, attn=("gaam",), seeds=tuple(range(6)))
    patch = pytest.MonkeyPatch()
    patch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    patch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))

    def interrupt(done: int, total: int, text: str) -> None:
        if "seeds 2-3 epoch 1" in text:
            raise KeyboardInterrupt

    for config in (place.config, replace(place.config, lr=0.02)):
        with pytest.raises(KeyboardInterrupt):
            gaam_decoder.train(config, progress=interrupt)
    patch.undo()
    place.keep()
    return place


def bits(run: RunResult) -> dict[str, bytes]:
    return {name: (run.path / name).read_bytes() for name in TENSORS}


def resumed(place: Place) -> tuple[dict[str, bytes], list[str]]:
    """Bits of the run that the interrupted training ends with, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        (run,) = gaam_decoder.train(place.config)
    said = [str(warning.message) for warning in caught if warning.category is GaamWarning]
    return bits(run), said


def folders_of(place: Place) -> tuple[Path, Path]:
    """Of the unfinished work of the config, and of that with another learning rate."""
    cache = open_cache(place.config.cache)
    (item,) = plan_items(place.config, cache, devices.resolve_device("cpu"))
    (second,) = set(place.runs.glob(".*.partial")) - {place.runs / f".gaam-{item.key[:8]}.partial"}
    return place.runs / f".gaam-{item.key[:8]}.partial", second


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


HARMS: dict[str, Callable[[Path, Path], object]] = {
    "a bit": lambda path, other: path.write_bytes(flipped(path.read_bytes())),
    "cut": lambda path, other: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path, other: path.write_bytes(b""),
    "appended": lambda path, other: path.write_bytes(path.read_bytes() + b"0"),
    "another group": lambda path, other: shutil.copy(next(_others(path)), path),
    "other runs": lambda path, other: shutil.copy(other / path.name, path),
    "link": lambda path, other: (path.unlink(), path.symlink_to(other / path.name)),
    "gone": lambda path, other: path.unlink(),
}


def _others(path: Path) -> Iterator[Path]:
    return (one for one in path.parent.iterdir() if one != path)


@pytest.mark.parametrize("group", range(3))
def test_damage_to_unfinished_work_costs_time_and_never_changes_a_bit(
    group: int, unfinished: Place, tmp_path: Path
) -> None:
    """Of the group that is done, the one at work, and the one that is only planned."""
    place = unfinished
    whole = bits(gaam_decoder.train(replace(place.config, runs=tmp_path / "undisturbed"))[0])
    for harm, do in HARMS.items():
        place.restore()
        first, second = folders_of(place)
        mine = sorted(first.iterdir())[group]
        do(mine, second)
        found, said = resumed(place)
        assert found == whole, harm
        assert len(said) == (harm != "gone"), (harm, said)
        assert all(mine.name in one and "trained again" in one for one in said)
        assert not first.exists(), harm


def test_a_damaged_finished_group_is_trained_again_as_it_was_put_together(
    unfinished: Place, tmp_path: Path
) -> None:
    """More memory now would make larger groups of what is left, whose last bits may differ."""
    place = unfinished
    whole = bits(gaam_decoder.train(replace(place.config, runs=tmp_path / "undisturbed"))[0])
    place.restore()
    first, _ = folders_of(place)
    (done,) = (path for path in first.iterdir() if b'"done\\": true' in path.read_bytes())
    done.write_bytes(b"")
    seen: list[str] = []
    config = replace(place.config, seed_batch=32)
    with pytest.warns(GaamWarning, match="trained again"):
        (run,) = gaam_decoder.train(config, progress=lambda d, t, text: seen.append(text))
    assert bits(run) == whole
    groups = {found.group(1) for text in seen if (found := re.search(r"seeds (\S+) epoch", text))}
    assert groups == {"0-1", "2-3", "4-5"}
    assert run.engine["seed_batch"] == 2
