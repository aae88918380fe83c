"""What is begun in a folder of runs, for whoever looks on: nothing is changed or taken up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.store.digest import digest_of
from gaam_decoder.runs.run_name import unfinished_folders, work_of
from gaam_decoder.unfinished.checkpoint import read


def claim_of(work: str, group: Sequence[int]) -> str:
    """What the claim of a group of seeds is called."""
    return f"{work}-{digest_of(str(list(group)).encode())[:8]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAtWork:
    """Seeds that are trained together and not finished."""

    seeds: list[int]
    epoch: int
    """That the last checkpoint holds; 0 where there is none."""
    claim: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A run to be."""

    title: str
    epochs: int
    planned: list[int]
    """Seeds."""
    done: list[int]
    groups: list[GroupAtWork]
    """Of the others."""
    seconds_left: float | None
    """Of one worker for all of them; None where nothing was timed yet."""


def look(runs: Path) -> tuple[Begun, ...]:
    """All that is begun, by name; what cannot be read at the moment is left out."""
    return tuple(
        begun for folder in unfinished_folders(runs) if (begun := begun_in(folder)) is not None
    )


def begun_in(folder: Path) -> Begun | None:
    """What is begun in one folder of work; None where it cannot be read at the moment."""
    name = work_of(folder.name)
    abouts = [about for path in sorted(folder.glob("*")) if (about := _about(path)) is not None]
    if not abouts:
        return None
    groups = list(dict.fromkeys(tuple(group) for about in abouts for group in about["planned"]))
    finished = [about["seeds"] for about in abouts if about["kind"] == "done"]
    done = {entry["seed"]: entry["seconds"] for entries in finished for entry in entries}
    at_work = {tuple(a["seeds"]): a for a in abouts if a["kind"] == "group"}
    epochs = max(about.get("epochs", 0) for about in abouts)
    left = [group for group in groups if not set(group) <= done.keys()]
    # per seed and epoch, of what is finished and of what is at work
    timed = [(seconds, epochs) for seconds in done.values()]
    timed += [(a["seconds"], len(a["seeds"]) * a["epochs_done"]) for a in at_work.values()]
    counted = sum(count for _, count in timed)
    to_do = sum(
        len(group) * (epochs - at_work.get(group, {"epochs_done": 0})["epochs_done"])
        for group in left
    )
    return Begun(
        title=next((about["title"] for about in abouts if "title" in about), name),
        epochs=epochs,
        planned=sorted({seed for group in groups for seed in group}),
        done=sorted(done),
        groups=[
            GroupAtWork(
                seeds=list(group),
                epoch=at_work.get(group, {"epochs_done": 0})["epochs_done"],
                claim=claim_of(name, group),
            )
            for group in left
        ],
        seconds_left=to_do * sum(s for s, _ in timed) / counted if counted and epochs else None,
    )


def _about(path: Path) -> dict[str, Any] | None:
    kind = path.name.partition("-")[0].partition(".")[0]
    if kind not in ("plan", "done", "group"):
        return None
    try:
        _, about = read(path, with_tensors=False)
        about["planned"], about["seeds"]
        return {**about, "kind": kind}
    except (OSError, ValueError, KeyError, TypeError):
        return None  # replaced at this moment, or damaged: for whoever goes on to say
