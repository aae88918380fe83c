"""What lies in folders of runs: finished, damaged and unfinished, an entry for each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines._claims import holdings
from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.messages import brief, visible
from gaam_decoder.runs.counting import on_training_rows
from gaam_decoder.runs.filters import Filters, published
from gaam_decoder.runs.loading import check_all
from gaam_decoder.runs.near_names import near_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import CREATED_FORMAT
from gaam_decoder.runs.run_folders import is_run, run_folders
from gaam_decoder.runs.run_name import CLAIM_FOLDER, unfinished_folders, work_of
from gaam_decoder.runs.selection import Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What ``gaam runs`` shows."""

    folders: tuple[str, ...]
    entries: tuple[dict[str, Any], ...]
    """JSON values of finished and damaged runs by name, then of what is unfinished."""
    selection: Selection | None
    """What filters left out; damaged and unfinished entries are always listed."""

    @property
    def damage(self) -> bool:
        """Whether a run is damaged."""
        return any(entry["state"] == "damaged" for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        chosen = {"selection": self.selection.to_dict()} if self.selection else {}
        return {"folders": list(self.folders), "runs": list(self.entries), **chosen}

    def in_words(self) -> str:
        """Two lines for every entry: its name, whole, and what it is; below them the counts."""
        lines = [line for entry in self.entries for line in _lines(entry)]
        states = [entry["state"] for entry in self.entries]
        counts = [f"{states.count(state):,} {state}" for state in dict.fromkeys(states)]
        lines += [", ".join(counts)] if counts else []
        lines += [self.selection.in_words()] if self.selection else []
        lines += ["unfinished: the same gaam train goes on"] if "unfinished" in states else []
        lines += ["damaged: gaam verify says what repairs it"] if self.damage else []
        return "\n".join(lines)


def _lines(entry: dict[str, Any]) -> tuple[str, str]:
    made, size = (entry["created"] or "")[:10], f"{entry['bytes'] / 1e6:,.2f} MB"
    first = visible("  ".join(filter(None, (entry["name"], made, size))))
    if entry["state"] != "finished":
        return first, f"  {entry['state'].upper()}: {brief(entry['what'], 200)}"
    seeds = f"{len(entry['seeds'])} seed{'s' * (len(entry['seeds']) > 1)}"
    seeds += f" ({len(entry['failed'])} failed)" if entry["failed"] else ""
    accuracy = entry["what"] or f"{100 * entry['accuracy']:.1f}%"
    accuracy += " (epoch chosen on the test rows)" if entry["optimistic"] else ""
    who = f"{brief(entry['attention'])} + {brief(entry['head'])}, {brief(entry['dataset'])}"
    return first, f"  {who} {entry['fingerprint'][:8]}, {seeds}, {accuracy}"


def list_runs(paths: Sequence[str | Path], **filters: Any) -> Listing:
    """Everything in folders of runs; single runs may be named too.

    Args:
        paths: folders of runs, and runs.
        filters: ``attn``, ``head``, ``layers``, ``lr``, ``cache``, ``since``: see ``load_runs``.

    Raises:
        NotFoundError: nothing there, finished, damaged or begun.
        ConfigError: a filter that means nothing.
        StorageError: a folder that cannot be read.
    """
    asked, found, begun = Filters.of(**filters), dict[Path, Path](), dict[Path, Path]()
    for place in (Path(path).expanduser() for path in paths):
        runs = [place] if is_run(place) else run_folders(place)
        partial = [] if is_run(place) else unfinished_folders(place)
        if not runs and not partial:
            raise NotFoundError(
                visible(f"no runs in '{place}'"),
                expected="a folder of runs, or a run",
                found="no run, finished or begun" if place.is_dir() else "no such folder",
                where=visible(str(place.absolute())),
                hint=near_run(place) or "make one with 'gaam train', or name another folder",
            )
        found = {path.resolve(): path for path in runs} | found
        begun = {path.resolve(): path for path in partial} | begun
    sound, damaged = check_all(list(found.values()))
    sound, selection = asked.choose(sound) if asked else (sound, None)
    entries = []
    for run in sound:
        try:
            entries.append(_finished(run))
        except CacheError as error:
            damaged[run.path] = error
    for path, damage in damaged.items():
        entries.append(_entry(path, "damaged", what=" ".join(damage.details["found"].split())))
    entries.sort(key=lambda entry: (entry["name"], entry["path"]))
    entries += map(_unfinished, begun.values())
    return Listing(folders=tuple(map(str, paths)), entries=tuple(entries), selection=selection)


def _finished(run: RunResult) -> dict[str, Any]:
    reasons = {
        "not evaluated": not run.evaluated,
        "tested on its own training rows": on_training_rows(run.recipe),
        "labels shuffled": run.shuffled,
        "no seed finished": not run.finished,
    }
    why, made = next((text for text, holds in reasons.items() if holds), None), published(run)
    return _entry(
        run.path, "finished", created=made and made.strftime(CREATED_FORMAT),
        attention=run.attention, head=run.head, dataset=run.cache["dataset"],
        fingerprint=run.cache["fingerprint"], seeds=list(run.seeds), failed=sorted(run.failed),
        accuracy=None if why else float(run.accuracy.mean()), optimistic=run.select == "test",
        what=why,
    )  # fmt: skip


def _unfinished(path: Path) -> dict[str, Any]:
    work = work_of(path.name)
    alive = [one for one in holdings(path.parent / CLAIM_FOLDER) if not one.dead]
    who = next((one for one in alive if f"{one.name}-".startswith(f"{work}-")), None)
    what = who.in_words() if who else "nobody is at work on it"
    return _entry(path, "unfinished", name=work, what=what)


def _entry(path: Path, state: str, **known: Any) -> dict[str, Any]:
    """All keys, of which most have no value; files that are gone meanwhile have no size."""
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                size += Path(folder, name).lstat().st_size
    none = ("created", "attention", "head", "dataset", "fingerprint", "accuracy", "what")
    lists: dict[str, list[int]] = {"seeds": [], "failed": []}
    entry = {"state": state, "name": path.absolute().name, "path": str(path.absolute())}
    return entry | {"bytes": size, "optimistic": False} | dict.fromkeys(none) | lists | known
