"""Promise 2: kill it anywhere, run it again: the same bytes, nothing lost, nothing done twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.contract.conftest import WITHOUT_LINKS, Outcome, at_once, files_of

RANKS = 3
STARTS: dict[str, Callable[[int], dict[str, int]]] = {
    "nobody": lambda number: {},
    "no links": lambda number: WITHOUT_LINKS,
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
"""Who began three at once, by what they find in their environment."""


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


@pytest.fixture(scope="module")
def into(
    encoder: Path, texts: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[object, ...]]:
    """A command into a folder: 14 shards of 6 rows; three mechanisms x two groups of two seeds."""
    root = tmp_path_factory.mktemp("resume")
    settings, states = root / "settings.toml", root / "states.npz"
    settings.write_text(
        '[extract]\nshard_rows = 6\n[train]\nseed_batch = 2\ncompile = "off"\n'
    )
    arrays: dict[str, Any] = {}
    for split, rows in (("train", 40), ("test", 20)):
        arrays[f"{split}/embeddings"] = np.random.default_rng(rows).normal(
            size=(rows, 3, 8)
        )
        arrays[f"{split}/labels"] = np.arange(rows) % 2
    np.savez(states, **arrays)
    cpu = ("--config", settings, "--device", "cpu")
    commands: dict[str, tuple[object, ...]] = {
        "extract": ("extract", "--encoder", encoder, "--dataset", texts, "--pool", "mean",
                    "--pool", "first", *cpu, "--out"),
        "train": ("train", "--cache", cache, "--attn", "gaam", "--attn", "mha", "--attn", "none",
                  "--seeds", 4, "--epochs", 4, "--lr", 3e-4, "--no-probe", *cpu, "--runs"),
        "import": ("import", states, "--out"),
        "plant": ("plant", "--rows", 1200),
    }  # fmt: skip
    return lambda kind, out, *more: (*commands[kind], out, "--quiet", "--json", *more)


class Whole(NamedTuple):
    """What one command makes that nobody disturbs, and did."""

    made: dict[str, Any]
    did: Outcome

    def check(self, out: Path) -> None:
        """A folder holds the same."""
        found = made(out)
        assert found.keys() == self.made.keys()
        assert [name for name in found if found[name] != self.made[name]] == []

    def published(self, out: Path) -> dict[str, tuple[int, int]]:
        """Files that no later command has any business to touch: a receipt makes its shard."""
        return {
            name: (file.stat().st_ino, file.stat().st_mtime_ns)
            for name in self.made
            if (file := out / name).exists()
            if file.suffix != ".h5" or file.with_name(f"{file.stem[:-9]}.json").exists()
        }


@pytest.fixture(scope="module")
def whole(
    into: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Whole]:
    """Of every kind of command."""
    root, kinds = (
        tmp_path_factory.mktemp("whole"),
        ("extract", "train", "import", "plant"),
    )
    did = at_once(
        [into(kind, root / kind) for kind in kinds], kill_at=[-1] * len(kinds)
    )
    assert [one.code for one in did] == [0] * 4, did
    return {
        kind: Whole(made(root / kind), one)
        for kind, one in zip(kinds, did, strict=True)
    }


@pytest.mark.parametrize(("kind", "places", "links"), [
    ("extract", 6, True), ("train", 6, True), ("import", 1, True), ("plant", 1, True),
    ("extract", 3, False), ("train", 3, False), ("import", 1, False),
])  # fmt: skip
def test_killed_anywhere_it_ends_with_the_same_bytes_and_does_nothing_twice(
    kind: str, places: int, links: bool, into: Callable[..., Any], whole: dict[str, Whole],
    tmp_path: Path,
) -> None:  # fmt: skip
    one = whole[kind]
    environs = [{} if links else WITHOUT_LINKS] * places
    kill_at = np.linspace(2, one.did.changes, places + 2, dtype=int).tolist()[1:-1]
    outs = [tmp_path / str(place) for place in kill_at]
    struck = at_once(
        [into(kind, out) for out in outs], kill_at=kill_at, environs=environs
    )
    assert [did.code for did in struck] == [-9] * places
    before = [one.published(out) for out in outs]
    again, lost = at_once([into(kind, out) for out in outs], environs=environs), []
    for out, kept, first, second in zip(outs, before, struck, again, strict=True):
        assert second.code == 0, second.err
        one.check(out)
        assert kept.items() <= one.published(out).items()
        if kind == "extract":
            receipts = [
                n for n in kept if n.startswith("shards") and n.endswith(".json")
            ]
            assert second.work == one.did.work - 6 * len(receipts)
        if kind == "train":  # of six groups of seeds the one in work is lost
            lost.append(first.steps + second.steps - one.did.work)
            assert 0 <= lost[-1] <= one.did.work // 6
    # the places were counted with links: without, more of them are in the middle of a group
    if links:
        assert lost.count(0) >= 0.7 * len(lost), "a group that was finished is lost"
    reached = {did.steps or len(kept) for did, kept in zip(struck, before, strict=True)}
    assert len(reached) >= places // 2, "kills at different times"


@pytest.mark.parametrize(("kind", "start", "killed"), [
    ("extract", "nobody", False), ("extract", "torchrun", False), ("extract", "array", False),
    ("extract", "srun", True), ("train", "nobody", False), ("train", "srun", False),
    ("train", "torchrun", True), ("extract", "no links", True), ("train", "no links", True),
])  # fmt: skip
def test_three_share_the_work_killed_or_not(
    kind: str, start: str, killed: bool, into: Callable[..., Any], whole: dict[str, Whole],
    tmp_path: Path,
) -> None:  # fmt: skip
    command, alone, lost = into(kind, tmp_path / "out"), whole[kind].did, []
    ranks = list(map(STARTS[start], range(RANKS)))
    if killed:
        lost = at_once([command], kill_at=[alone.changes // 2], environs=ranks[:1])
        assert lost[0].code == -9
    rest = at_once([command] * (RANKS - killed), environs=ranks[killed:])
    assert [one.code for one in rest] == [0] * len(rest), rest
    whole[kind].check(tmp_path / "out")
    done = sum(one.work for one in [*rest, *lost])
    if killed and kind == "extract":
        assert 0 < done < alone.work
    else:  # of six groups of seeds the one in work is lost
        assert alone.work <= done <= 1.03 * alone.work + killed * alone.work / 6


@pytest.mark.parametrize("kind", ["extract", "train"])
@pytest.mark.parametrize(
    "engine", ["local", pytest.param("ray", marks=pytest.mark.slow)]
)
def test_workers_of_an_engine_make_the_same_bytes(
    engine: str,
    kind: str,
    into: Callable[..., Any],
    whole: dict[str, Whole],
    tmp_path: Path,
) -> None:
    if engine == "ray":
        pytest.importorskip(
            "ray", reason="the package ray (extra 'ray') is not installed"
        )
    (did,) = at_once([into(kind, tmp_path, "--engine", engine, "--devices", 2)])
    assert did.code == 0, did.err
    whole[kind].check(tmp_path)
