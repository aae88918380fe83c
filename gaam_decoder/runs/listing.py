"""What lies in folders of runs, finished, damaged and unfinished; is every byte right?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines._claims import holdings
from gaam_cache.messages import brief, visible
from gaam_decoder.runs.filters import Selection, select
from gaam_decoder.runs.folders import CLAIM_FOLDER, is_run, run_folders, unfinished_runs, work_of
from gaam_decoder.runs.loading import check_all, find_runs
from gaam_decoder.runs.result import RunResult, repair
from gaam_decoder.runs.tuning import on_training_rows


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
        lines = []
        for entry in self.entries:
            made, size = (entry["created"] or "")[:10], f"{entry['bytes'] / 1e6:,.2f} MB"
            lines.append(visible("  ".join(filter(None, (entry["name"], made, size)))))
            if entry["state"] != "finished":
                lines.append(f"  {entry['state'].upper()}: {brief(entry['what'], 200)}")
                continue
            seeds = f"{len(entry['seeds'])} seed{'s' * (len(entry['seeds']) > 1)}"
            seeds += f" ({len(entry['failed'])} failed)" if entry["failed"] else ""
            seeds += " to choose a rate" if entry["chose"] else ""
            accuracy = entry["what"] or f"{100 * entry['accuracy']:.1f}%"
            accuracy += " (epoch chosen on the test rows)" if entry["optimistic"] else ""
            decoder = f"{brief(entry['attention'])} + {brief(entry['head'])}"
            decoder += f", lr {entry['lr']:g}" if entry["lr"] else ""
            cache = f"{brief(entry['dataset'])} {entry['fingerprint'][:8]}"
            lines.append(f"  {decoder}, {cache}, {seeds}, {accuracy}")
        states = [entry["state"] for entry in self.entries]
        counts = [f"{states.count(state):,} {state}" for state in dict.fromkeys(states)]
        lines += [", ".join(counts)] if counts else []
        lines += [self.selection.in_words()] if self.selection else []
        lines += ["unfinished: the same gaam train goes on"] if "unfinished" in states else []
        lines += ["damaged: gaam verify says what repairs it"] if self.damage else []
        return "\n".join(lines)


def list_runs(paths: Sequence[str | Path], **filters: Any) -> Listing:
    """Everything in folders of runs; single runs may be named too."""
    sound, damaged, begun = find_runs([Path(path).expanduser() for path in paths])
    sound, selection = select(sound, **filters)
    entries = [_finished(run) for run in sound]
    for path, damage in damaged.items():
        entries.append(_entry(path, "damaged", what=" ".join(damage.details["found"].split())))
    entries.sort(key=lambda entry: (entry["name"], entry["path"]))
    for path in begun:
        work = work_of(path.name)
        held = [one for one in holdings(path.parent / CLAIM_FOLDER) if not one.dead]
        who = [one.in_words() for one in held if f"{one.name}-".startswith(f"{work}-")]
        what = who[0] if who else "nobody is at work on it"
        entries.append(_entry(path, "unfinished", name=work, what=what))
    return Listing(folders=tuple(map(str, paths)), entries=tuple(entries), selection=selection)


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
    """All keys, of which most have no value where a run is not finished."""
    size = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):  # of somebody who is at work
            size += 0 if file.is_dir() else file.lstat().st_size
    about = {"state": state, "name": path.absolute().name, "path": str(path.absolute())}
    empty: dict[str, Any] = {"bytes": size, "optimistic": False, "chose": False}
    names = ("created", "attention", "head", "dataset", "fingerprint", "accuracy", "what", "lr")
    return about | empty | dict.fromkeys(names) | {"seeds": [], "failed": []} | known


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsVerification:
    """What ``verify`` found."""

    path: str
    good_runs: tuple[str, ...]
    """Folders, by name."""
    bytes: int
    """Bytes of the good runs, all of which were hashed."""
    bad: tuple[dict[str, str], ...]
    """Of every run that is not what it must be ``name``, ``reason`` and ``repair``, a command."""
    unfinished: tuple[str, ...]
    """Begun and not finished; the same ``gaam train`` finishes them."""

    @property
    def good(self) -> bool:
        """Whether every finished run is right."""
        return not self.bad

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"good": self.good, **asdict(self)}

    def in_words(self) -> str:
        """Lines for people: one for every bad run."""
        lines = [
            f"runs '{self.path}': {'good' if self.good else 'DAMAGED'}",
            f"  runs         {len(self.good_runs):,} good, {len(self.bad):,} bad, "
            f"{len(self.unfinished):,} unfinished; {self.bytes / 1e6:,.1f} MB hashed",
        ]
        lines += [f"bad: {b['name']}: {b['reason']}; repair: {b['repair']}" for b in self.bad]
        lines += [f"unfinished: {name}; the same gaam train goes on" for name in self.unfinished]
        return visible("\n".join(lines), keep="\n")


def is_runs(path: Path) -> bool:
    """Whether runs lie there, finished, damaged or begun, or ``path`` is one."""
    return is_run(path) or bool(run_folders(path)) or bool(unfinished_runs(path))


def verify(
    path: str | Path, *, progress: Callable[[int, int, str], None] | None = None
) -> RunsVerification:
    """Hash every byte of finished runs."""
    root = Path(path).expanduser()
    found = [root] if is_run(root) else run_folders(root)

    def done(folder: Path) -> None:
        if progress is not None:
            progress(found.index(folder) + 1, len(found), f"run {folder.name}")

    runs, damaged = check_all(found, whole=True, done=done)
    return RunsVerification(
        path=str(root),
        good_runs=tuple(run.path.name for run in runs),
        bytes=sum(about["bytes"] for run in runs for about in run.files.values()),
        bad=tuple(
            {
                "name": visible(folder.name),
                "reason": " ".join(error.details["found"].split()),
                "repair": f"{repair(folder)} && the gaam train that made the run",
            }
            for folder, error in damaged.items()
        ),
        unfinished=tuple(unfinished_runs(root)),
    )
