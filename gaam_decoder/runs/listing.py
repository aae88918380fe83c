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

KEYS = ("created", "attention", "head", "dataset", "fingerprint", "accuracy", "what", "lr")
"""Of an entry, beside its state, name, path and bytes; most are None where it is not finished."""


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
            made, size = (entry["created"] or "")[:10], f"{entry['bytes'] / 1e6:,.2f} MB"
            lines.append(visible("  ".join(filter(None, (entry["name"], made, size)))))
            if entry["state"] != "finished":
                lines.append(f"  {entry['state'].upper()}: {brief(entry['what'], 200)}")
                lines += [f"  {entry['repair']}"] if "repair" in entry else []
                continue
            seeds = f"seeds: {len(entry['seeds'])}"
            seeds += f" ({len(entry['failed'])} failed)" if entry["failed"] else ""
            seeds += " to choose a rate" if entry["chose"] else ""
            accuracy = entry["what"] or f"{100 * entry['accuracy']:.1f}%"
            accuracy += " (epoch chosen on the test rows)" if entry["optimistic"] else ""
            decoder = f"{brief(entry['attention'])} + {brief(entry['head'])}"
            decoder += f", lr {entry['lr']:g}" if entry["lr"] else ""
            cache = f"{brief(entry['dataset'])} {entry['fingerprint'][:8]}"
            lines.append(f"  {decoder}, {cache}, {seeds}, {accuracy}")
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
    reasons = {
        "not evaluated": not run.evaluated,
        "tested on its own training rows": on_training_rows(run.recipe),
        "labels shuffled": run.shuffled,
        "no seed finished": not run.finished,
    }
    why = next((text for text, holds in reasons.items() if holds), None)
    return _entry(
        run.path,
        "finished",
        optimistic=run.select == "test",
        created=run.created,
        attention=run.attention,
        head=run.head,
        dataset=run.cache["dataset"],
        fingerprint=run.cache["fingerprint"],
        accuracy=None if why else float(run.accuracy.mean()),
        what=why,
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
    empty: dict[str, Any] = {"bytes": size, "optimistic": False, "chose": False}
    return about | empty | dict.fromkeys(KEYS) | {"seeds": [], "failed": []} | known


def is_runs(path: Path) -> bool:
    """Whether runs lie there, finished, damaged or begun, or ``path`` is one."""
    return is_run(path) or bool(run_folders(path)) or bool(unfinished_folders(path))


def verify(path: str | Path, *, progress: Progress | None = None) -> Listing:
    """Hash every byte of finished runs."""
    return list_runs([path], whole=True, progress=progress)
