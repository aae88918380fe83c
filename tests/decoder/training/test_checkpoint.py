"""Unfinished work that is damaged or cut costs time and never changes a bit."""

from __future__ import annotations

import itertools
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import gaam_decoder
from gaam_cache.common.errors import GaamWarning
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.runs.files import TEST_FILE, VALIDATION_FILE, WEIGHTS_FILE
from gaam_decoder.training import checkpoint
from tests.decoder.configs import change, train_config, train_single_run

TENSORS = (WEIGHTS_FILE, TEST_FILE, VALIDATION_FILE)


class Unfinished(NamedTuple):
    """Interrupted trainings of two rates, and what the first would have become."""

    config: TrainConfig
    copy: Path
    """The folder of both, from which it is made again before each damage."""
    expected: dict[str, bytes]
    """The tensors of a training without a stop."""

    def restore(self) -> tuple[Path, Path]:
        """The unfinished folder of this config, and that of the other rate."""
        shutil.rmtree(self.config.runs, ignore_errors=True)
        shutil.copytree(self.copy, self.config.runs)
        first, second = sorted(self.config.runs.glob(".*.partial"))
        if any(b"lr 0.01" in path.read_bytes() for path in first.iterdir()):
            return first, second
        return second, first


@pytest.fixture(scope="module")
def unfinished(
    tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Unfinished:
    """Seeds 0-5 in pairs: one is done, one at work, and one not begun."""
    root = tmp_path_factory.mktemp("unfinished")
    config = train_config(
        tiny_cache,
        root / "runs",
        attn=("gaam",),
        seeds="0-5",
        epochs=2,
        lr=0.01,
        seed_batch=2,
        compile="off",
        device="cpu",
    )

    def interrupt(done: int, total: int, text: str) -> None:
        if "seeds 2-3, epoch 1 of" in text:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        patch.setattr(checkpoint, "CHECKPOINT_SHARE", float("inf"))
        for rate in (0.01, 0.02):
            with pytest.raises(KeyboardInterrupt):
                gaam_decoder.train(change(config, lr=rate), progress=interrupt)
    shutil.copytree(root / "runs", root / "copy")
    run = train_single_run(config, runs=root / "undisturbed")
    return Unfinished(config, root / "copy", tensor_bytes(run))


@pytest.fixture(autouse=True)
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that believes a damaged file looks for its seeds again and again."""
    looks = itertools.count()
    load = checkpoint.UnfinishedWork.load

    def counted_load(unfinished: checkpoint.UnfinishedWork) -> Any:
        assert next(looks) < 100, "it looks for seeds that nobody will train"
        return load(unfinished)

    monkeypatch.setattr(checkpoint.UnfinishedWork, "load", counted_load)


def tensor_bytes(run: RunResult) -> dict[str, bytes]:
    return {name: (run.path / name).read_bytes() for name in TENSORS}


def flip_a_bit(file: Path, other_runs: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def cut_the_end(file: Path, other_runs: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def empty(file: Path, other_runs: Path) -> None:
    file.write_bytes(b"")


def replace_by_another_seed_batch(file: Path, other_runs: Path) -> None:
    another = next(path for path in file.parent.iterdir() if path != file)
    shutil.copy(another, file)


def replace_by_other_runs(file: Path, other_runs: Path) -> None:
    shutil.copy(other_runs / file.name, file)


def delete(file: Path, other_runs: Path) -> None:
    file.unlink()


DAMAGES: list[Callable[[Path, Path], None]] = [
    flip_a_bit,
    cut_the_end,
    empty,
    replace_by_another_seed_batch,
    replace_by_other_runs,
    delete,
]
SEED_BATCHES = ("done", "at work", "planned")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("seed_batch", SEED_BATCHES)
def test_damage_to_unfinished_work_costs_time_and_never_changes_a_bit(
    seed_batch: str, damage: Callable[[Path, Path], None], unfinished: Unfinished
) -> None:
    folder, other_runs = unfinished.restore()
    file = sorted(folder.iterdir())[SEED_BATCHES.index(seed_batch)]
    damage(file, other_runs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        run = train_single_run(unfinished.config)
    assert tensor_bytes(run) == unfinished.expected
    messages = [
        str(warning.message) for warning in caught if warning.category is GaamWarning
    ]
    if damage is delete:
        assert not messages
    else:
        [message] = messages
        assert file.name in message
    assert not folder.exists()


def train_and_list_batches(config: TrainConfig) -> tuple[RunResult, set[str]]:
    """The run, and which seeds were trained together."""
    batches = set()

    def note(done: int, total: int, text: str) -> None:
        seeds = re.search(r"seeds? ([\d-]+), epoch", text)
        if seeds is not None:
            batches.add(seeds[1])

    [run] = gaam_decoder.train(config, progress=note)
    return run, batches


def test_more_memory_makes_no_larger_seed_batches(unfinished: Unfinished) -> None:
    """The last bits of seeds are those of seeds together."""
    folder, _ = unfinished.restore()
    [done] = [
        path for path in folder.iterdir() if b'"done\\": true' in path.read_bytes()
    ]
    done.write_bytes(b"")
    with pytest.warns(GaamWarning, match=done.name):
        run, batches = train_and_list_batches(change(unfinished.config, seed_batch=32))
    assert tensor_bytes(run) == unfinished.expected
    assert batches == {"0-1", "2-3", "4-5"}
    assert run.engine["seed_batch"] == 2


def test_less_memory_makes_smaller_seed_batches(unfinished: Unfinished) -> None:
    unfinished.restore()
    run, batches = train_and_list_batches(change(unfinished.config, seed_batch=1))
    assert batches == {"2", "3", "4", "5"}
    assert run.seeds == tuple(range(6))
