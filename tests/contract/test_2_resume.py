"""Promise 2: kill it anywhere, run it again: the same bytes, nothing lost, nothing done twice.

Alone, by two at once, by ranks that somebody else started, by workers of an engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from tests.contract.conftest import FORKS, Outcome, _child, files_of, run

SECONDS = 300
"""After so long a command hangs."""
KILLED = Outcome(-9, "", "")
NEVER = -1
ROWS = 84
RANKS = 3
RANK_BY: dict[str, Callable[[int], dict[str, int]]] = {
    "torchrun": lambda number: {"RANK": number, "WORLD_SIZE": RANKS, "LOCAL_RANK": number},
    "srun": lambda number: {
        "SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0, "SLURM_PROCID": number, "SLURM_LOCALID": number,
        "SLURM_NTASKS": RANKS, "SLURM_STEP_NUM_TASKS": RANKS, "SLURM_STEP_TASKS_PER_NODE": RANKS,
    },
    "array": lambda number: {
        "SLURM_JOB_ID": 7 + number, "SLURM_ARRAY_JOB_ID": 7, "SLURM_ARRAY_TASK_ID": number + 1,
        "SLURM_ARRAY_TASK_MIN": 1, "SLURM_ARRAY_TASK_MAX": RANKS, "SLURM_ARRAY_TASK_STEP": 1,
        "SLURM_ARRAY_TASK_COUNT": RANKS,
    },
}  # fmt: skip


class Did(NamedTuple):
    """What a command left, and what it did."""

    outcome: Outcome
    steps: int
    """Gradients of training."""
    changes: int
    """Of files, where it was to be killed at one."""

    @property
    def work(self) -> int:
        """Rows that were encoded, or steps of training."""
        said = json.loads(self.outcome.out)
        return int(said["rows_made"]) if isinstance(said, dict) else self.steps


def _work(
    arguments: tuple[object, ...], environ: dict[str, str], kill_at: int, gate: Any, steps: Any,
    changes: Any, mouth: Any,
) -> None:  # fmt: skip
    gradient = torch.autograd.grad

    def counted(*given: Any, **named: Any) -> Any:
        steps.value += 1
        return gradient(*given, **named)

    torch.autograd.grad = counted
    gate.wait(SECONDS)
    if kill_at:
        _child(arguments, environ, kill_at, changes)
    os.environ |= {"OMP_NUM_THREADS": "1"} | environ
    mouth.send(run(*arguments))


def at_once(
    commands: Sequence[tuple[object, ...]],
    *,
    kill_at: Sequence[int] = (),
    environs: Sequence[dict[str, int]] = (),
) -> list[Did]:
    """Run commands that begin at the same moment, each in a process of its own.

    What is to be killed says nothing; at NEVER it is not, and its changes are counted.
    """
    gate, begun, found = FORKS.Barrier(len(commands)), [], []
    for number, command in enumerate(commands):
        ear, mouth = FORKS.Pipe(duplex=False)
        counts = [FORKS.Value("q", 0, lock=False) for _ in range(2)]
        environ = {k: str(v) for k, v in environs[number].items()} if environs else {}
        place = kill_at[number] if kill_at else 0
        process = FORKS.Process(target=_work, args=(command, environ, place, gate, *counts, mouth))
        process.start()
        mouth.close()
        begun.append((process, ear, counts))
    try:
        for process, ear, counts in begun:
            assert ear.poll(SECONDS), "it hangs"
            try:
                outcome = ear.recv()
            except EOFError:
                process.join()
                outcome = Outcome(int(process.exitcode or 0), "", "")
            found.append(Did(outcome, *(count.value for count in counts)))
    finally:
        for process, *_ in begun:
            process.kill()
            process.join()
    return found


def timeless(value: Any) -> Any:
    """JSON without times, what hashes them, and facts of the host."""
    if isinstance(value, dict):
        without = {"created", "seconds", "environment", "sha256_of_this", "log.jsonl"}
        without |= {"config.toml"}  # which says where it lies
        return {k: timeless(v) for k, v in value.items() if k not in without}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def made(folder: Path) -> dict[str, Any]:
    """Every file of a cache or of runs, but for times and for where it lies."""
    found: dict[str, Any] = {}
    for name, content in files_of(folder).items():
        found[name] = content.replace(str(folder).encode(), b"")
        if Path(name).name in ("run.json", "log.jsonl"):
            lines = content.splitlines() if name.endswith("l") else [content]
            found[name] = [timeless(json.loads(line)) for line in lines]
    return found


class Commands(NamedTuple):
    """Of each kind one, that lacks nothing but the folder to be made."""

    settings: Path
    encoder: Path
    texts: Path
    cache: Path
    states: Path

    def into(self, kind: str, out: Path, *more: object) -> tuple[object, ...]:
        """The command line."""
        own: tuple[object, ...] = {
            "extract": ("--config", self.settings, "--encoder", self.encoder, "--dataset",
                        self.texts, "--pool", "mean", "--pool", "first", "--out", out),
            "train": ("--config", self.settings, "--cache", self.cache, "--attn", "gaam",
                      "--attn", "mha", "--attn", "none", "--seeds", 4, "--epochs", 4,
                      "--batch-size", 16, "--no-probe", "--runs", out),
            "import": (self.states, "--out", out),
            "plant": (out, "--rows", 1200),
        }[kind]  # fmt: skip
        device = ("--device", "cpu") if kind in ("extract", "train") else ()
        return (kind, *own, *device, "--quiet", "--json", *more)


@pytest.fixture(scope="module")
def commands(
    encoder: Path, texts: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Commands:
    """14 shards of 6 rows; three mechanisms, of each two groups of two seeds."""
    root = tmp_path_factory.mktemp("resume")
    settings, states = root / "settings.toml", root / "states.npz"
    settings.write_text('[extract]\nshard_rows = 6\n[train]\nseed_batch = 2\ncompile = "off"\n')
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for split, rows in (("train", 40), ("test", 20)):
        arrays[f"{split}/embeddings"] = rng.normal(size=(rows, 3, 8)).astype(np.float32)
        arrays[f"{split}/labels"] = np.arange(rows) % 2
    np.savez(states, **arrays)
    return Commands(settings, encoder, texts, cache, states)


class Whole(NamedTuple):
    """What one command makes that nobody disturbs."""

    made: dict[str, Any]
    work: int
    """Rows, or steps."""
    changes: int
    """Of files."""


@pytest.fixture(scope="module")
def whole(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    """Of every kind of command."""
    root, kinds = tmp_path_factory.mktemp("whole"), ("extract", "train", "import", "plant")
    did = at_once([commands.into(kind, root / kind) for kind in kinds], kill_at=[NEVER] * 4)
    assert [one.outcome.code for one in did] == [0] * 4, did
    return {
        kind: Whole(made(root / kind), one.steps or ROWS, one.changes)
        for kind, one in zip(kinds, did, strict=True)
    }


def published(folder: Path, whole: Whole) -> dict[str, tuple[int, int]]:
    """Files that no later command has any business to touch: a receipt makes its shard exist."""
    return {
        name: (file.stat().st_ino, file.stat().st_mtime_ns)
        for name in whole.made
        if (file := folder / name).exists()
        if file.suffix != ".h5" or file.with_name(f"{file.stem[:-9]}.json").exists()
    }


def same(out: Path, whole: Whole) -> None:
    """Whether a folder holds what one command makes that nobody disturbs."""
    found = made(out)
    assert found.keys() == whole.made.keys()
    assert [name for name in found if found[name] != whole.made[name]] == []


@pytest.mark.parametrize(
    ("kind", "places"), [("extract", 10), ("train", 10), ("import", 1), ("plant", 1)]
)
def test_killed_anywhere_it_ends_with_the_same_bytes_and_does_nothing_twice(
    kind: str, places: int, commands: Commands, whole: dict[str, Whole], tmp_path: Path
) -> None:
    kill_at = np.linspace(2, whole[kind].changes, places + 2, dtype=int).tolist()[1:-1]
    lines = [commands.into(kind, tmp_path / str(place)) for place in kill_at]
    struck = at_once(lines, kill_at=kill_at)
    assert [did.outcome for did in struck] == [KILLED] * places
    before = [published(tmp_path / str(place), whole[kind]) for place in kill_at]
    again, lost = at_once(lines), []
    for place, kept, first, second in zip(kill_at, before, struck, again, strict=True):
        assert second.outcome.code == 0, second.outcome.err
        same(tmp_path / str(place), whole[kind])
        assert kept.items() <= published(tmp_path / str(place), whole[kind]).items()
        if kind == "extract":
            receipts = [n for n in kept if n.startswith("shards") and n.endswith(".json")]
            assert second.work == whole[kind].work - 6 * len(receipts)
        if kind == "train":  # of six groups of seeds the one in work is lost
            lost.append(first.steps + second.steps - whole[kind].work)
            assert 0 <= lost[-1] <= whole[kind].work // 6
    assert lost.count(0) >= 0.7 * len(lost), "a group that was finished is lost"
    reached = {did.steps or len(kept) for did, kept in zip(struck, before, strict=True)}
    assert len(reached) > places // 2, "kills at different times"


@pytest.mark.parametrize("kind", ["extract", "train"])
def test_two_at_once_end_with_the_same_bytes_and_do_nothing_twice(
    kind: str, commands: Commands, whole: dict[str, Whole], tmp_path: Path
) -> None:
    did = at_once([commands.into(kind, tmp_path / "out")] * 2)
    assert [one.outcome.code for one in did] == [0, 0], did
    same(tmp_path / "out", whole[kind])
    alone = whole[kind].work
    assert alone <= sum(one.work for one in did) <= 1.03 * alone


@pytest.mark.parametrize(
    ("kind", "start", "killed"),
    [("extract", "torchrun", False), ("extract", "array", False), ("extract", "srun", True),
     ("train", "srun", False), ("train", "torchrun", True)],
)  # fmt: skip
def test_ranks_share_the_work_killed_or_not(
    kind: str, start: str, killed: bool, commands: Commands, whole: dict[str, Whole], tmp_path: Path
) -> None:
    command, alone = commands.into(kind, tmp_path / "out"), whole[kind].work
    ranks = list(map(RANK_BY[start], range(RANKS)))
    lost = (
        at_once([command], kill_at=[whole[kind].changes // 2], environs=ranks[:1]) if killed else []
    )
    assert [one.outcome for one in lost] == [KILLED] * killed
    rest = at_once([command] * (RANKS - killed), environs=ranks[killed:])
    assert [one.outcome.code for one in rest] == [0] * len(rest), rest
    same(tmp_path / "out", whole[kind])
    done = sum(one.work for one in rest) + sum(one.steps for one in lost)
    if killed and kind == "extract":
        assert 0 < done < alone
    else:  # of six groups of seeds the one in work is lost
        assert alone <= done <= 1.03 * alone + killed * alone / 6


@pytest.mark.parametrize("kind", ["extract", "train"])
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_workers_of_an_engine_make_the_same_bytes(
    engine: str, kind: str, commands: Commands, whole: dict[str, Whole], tmp_path: Path
) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    (did,) = at_once([commands.into(kind, tmp_path, "--engine", engine, "--devices", 2)])
    assert did.outcome.code == 0, did.outcome.err
    same(tmp_path, whole[kind])
