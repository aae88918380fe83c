"""How far the trainings in a folder are: what is finished or begun, and who is at work."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines.sharing.holdings import Holding, holdings
from gaam_cache.errors import NotFoundError
from gaam_cache.messages import duration, visible
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.run_folders import run_folders
from gaam_decoder.runs.run_reader import read_run
from gaam_decoder.unfinished.look import LEASE_FOLDER, Begun, look


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsStatus:
    """What ``gaam status`` says of a folder of runs."""

    path: str
    runs: int
    """That are finished."""
    seeds: int
    """That they hold."""
    begun: tuple[Begun, ...]
    """What is not finished."""
    at_work: tuple[Holding, ...]
    seconds_left: float | None
    """Of what is begun, by the workers there are; None where that cannot be told."""

    @property
    def complete(self) -> bool:
        """Whether nothing that was begun is unfinished."""
        return not self.begun

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"kind": "runs", "complete": self.complete, **asdict(self)}

    def in_words(self) -> str:
        """Lines for people."""
        lines = [f"runs {visible(self.path)}: {self.runs:,} finished, {self.seeds:,} seeds"]
        known = set()
        for work in self.begun:
            done = f"{len(work.done)} of {len(work.planned)} seeds finished"
            lines.append(f"  {visible(work.title)}: {done}")
            for group in work.groups:
                held = next((one for one in self.at_work if one.name == group.lease), None)
                known.add(group.lease)
                epochs = f" epoch {group.epoch}/{work.epochs}" if group.epoch else ""
                who = f": {held.in_words()}" if held else ": nobody is at work on it"
                lines.append(f"    seeds {spell_numbers(group.seeds)}{epochs}{who}")
        others = [one for one in self.at_work if one.name not in known]
        lines += [f"  {visible(held.name)}: {held.in_words()}" for held in others]
        if self.seconds_left is not None:
            lines.append(f"  about {duration(self.seconds_left)} left of what is begun")
        if self.begun and not self.at_work:
            lines.append("  nobody is at work: the same gaam train again goes on")
        return "\n".join(lines)


def status(path: Path) -> RunsStatus:
    """How far the trainings in a folder are; others may be writing there.

    Raises:
        NotFoundError: nothing was begun there.
        CacheError: a finished run is damaged.
        StorageError: the folder cannot be read.
    """
    runs = [read_run(folder) for folder in run_folders(path)]
    held = tuple(holdings(path / LEASE_FOLDER))
    begun = look(path)
    if not runs and not begun and not held:
        raise NotFoundError(
            f"nothing was trained in '{path}'",
            expected="a folder of runs, or a cache",
            found="no run, finished or begun" if path.is_dir() else "no such folder",
            where=str(path.absolute()),
            hint="gaam train --runs, or gaam extract --out, names the folder",
        )
    alive = sum(not one.dead for one in held)
    left = [work.seconds_left for work in begun]
    known = [seconds for seconds in left if seconds is not None]
    return RunsStatus(
        path=str(path),
        runs=len(runs),
        seeds=sum(len(run.seeds) for run in runs),
        begun=begun,
        at_work=held,
        seconds_left=sum(known) / alive if begun and alive and len(known) == len(left) else None,
    )
