"""What lies in folders of runs, finished, damaged and unfinished; is every byte right?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines._claims import holdings
from gaam_cache.messages import brief, visible
from gaam_decoder.runs.folders import CLAIM_FOLDER, is_run, run_folders, unfinished_folders, work_of
from gaam_decoder.runs.loading import Progress, Selection, find_runs, select
from gaam_decoder.runs.result import RunResult, repair
from gaam_decoder.runs.tuning import on_training_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What ``gaam runs`` shows, and ``gaam verify`` of runs."""

    folders: tuple[str, ...]
    entries: tuple[dict[str, Any], ...]
    """JSON values of finished and damaged runs by name, then of what is unfinished."""
    selection: Selection | None
    """What filters left out; damaged and unfinished entries are always listed."""
    whole: bool
    """Whether every byte was hashed; then people are told of what is not right alone."""

    @property
    def good(self) -> bool:
        """Whether no run is damaged."""
        return all(entry["state"] != "damaged" for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        chosen = {"selection": self.selection.to_dict()} if self.selection else {}
        about = {"good": self.good, "folders": list(self.folders), "runs": list(self.entries)}
        return about | chosen

    def in_words(self) -> str:
        """Two lines for every entry: its name, whole, and what it is; below them the counts."""
        lines = []
        for entry in self.entries:
            if self.whole and entry["state"] == "finished":
                continue
            made, size = (entry.get("created") or "")[:10], f"{entry['bytes'] / 1e6:,.2f} MB"
            lines.append(visible("  ".join(filter(None, (entry["name"], made, size)))))
            state = "" if entry["state"] == "finished" else f"{entry['state'].upper()}: "
            lines.append(f"  {state}{brief(entry['what'], 300)}")
            lines += [f"  {entry['repair']}"] if "repair" in entry else []
        states = Counter(entry["state"] for entry in self.entries)
        counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
        lines.append(counts + ", every byte hashed" * self.whole)
        lines += [self.selection.in_words()] if self.selection else []
        lines += ["unfinished: the same gaam train goes on"] if states["unfinished"] else []
        return "\n".join(lines)


def list_runs(
    paths: Sequence[str | Path],
    *,
    whole: bool = False,
    progress: Progress | None = None,
    **filters: Any,
) -> Listing:
    """Everything in folders of runs, or runs; ``whole`` hashes every byte of those finished."""
    places = [Path(path).expanduser() for path in paths]
    sound, damaged, begun = find_runs(places, whole=whole, progress=progress)
    sound, selection = select(sound, **filters)
    entries = [_finished(run) for run in sound]
    for path, damage in damaged.items():
        what = " ".join(damage.details["found"].split())
        again = f"{repair(path)} && the gaam train that made the run"
        entries.append(_entry(path, "damaged", what=what, repair=again))
    entries.sort(key=lambda entry: (entry["name"], entry["path"]))
    for path in begun:
        work = work_of(path.name)
        held = [one for one in holdings(path.parent / CLAIM_FOLDER) if not one.dead]
        who = [one.in_words() for one in held if f"{one.name}-".startswith(f"{work}-")]
        what = who[0] if who else "nobody is at work on it"
        entries.append(_entry(path, "unfinished", name=work, what=what))
    return Listing(
        folders=tuple(map(str, paths)), entries=tuple(entries), selection=selection, whole=whole
    )


def _finished(run: RunResult) -> dict[str, Any]:
    learned_from = on_training_rows(run.recipe)
    of_test = run.evaluated and run.finished and not (learned_from or run.shuffled)
    what = run.in_words() + ", tested on its own training rows" * learned_from
    return _entry(
        run.path,
        "finished",
        what=f"{what}, {run.cache['dataset']} {run.cache['fingerprint'][:8]}",
        created=run.created,
        attention=run.attention,
        head=run.head,
        dataset=run.cache["dataset"],
        fingerprint=run.cache["fingerprint"],
        accuracy=float(run.accuracy.mean()) if of_test else None,
        select=run.select,
        lr=run.recipe.get("lr"),
        chose=run.chose,
        seeds=list(run.seeds),
        failed=sorted(run.failed),
    )


def _entry(path: Path, state: str, **known: Any) -> dict[str, Any]:
    size = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):  # of somebody who is at work
            size += 0 if file.is_dir() else file.lstat().st_size
    about = {"state": state, "name": path.absolute().name, "path": str(path.absolute())}
    return about | {"bytes": size} | known


def is_runs(path: Path) -> bool:
    """Whether runs lie there, finished, damaged or begun, or ``path`` is one."""
    return is_run(path) or bool(run_folders(path)) or bool(unfinished_folders(path))


def verify(path: str | Path, *, progress: Progress | None = None) -> Listing:
    """Hash every byte of finished runs."""
    return list_runs([path], whole=True, progress=progress)
