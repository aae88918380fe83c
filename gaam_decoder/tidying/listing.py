"""What lies in folders of runs: finished, damaged and unfinished, one entry for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from gaam_cache.engines.sharing.holdings import Holding

from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.messages import visible
from gaam_decoder.runs.counting import on_training_rows
from gaam_decoder.runs.filters import Filters, published
from gaam_decoder.runs.loading import check_all
from gaam_decoder.runs.near_names import near_run
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import CREATED_FORMAT
from gaam_decoder.runs.run_folders import is_run, run_folders
from gaam_decoder.runs.run_name import unfinished_folders, work_of
from gaam_decoder.runs.selection import Selection
from gaam_decoder.tidying.at_work import at_work, is_at
from gaam_decoder.tidying.sizes import bytes_of
from gaam_decoder.unfinished.look import begun_in


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One run, or what is to become one."""

    state: Literal["finished", "damaged", "unfinished"]
    name: str
    path: str
    bytes: int
    created: str | None = None
    """When it was published, UTC; of runs of earlier versions, when run.json was changed last."""
    created_by_file: bool = False
    """Whether that is when the file was changed."""
    attention: str | None = None
    head: str | None = None
    dataset: str | None = None
    fingerprint: str | None = None
    """Of the cache."""
    seeds: list[int] = field(default_factory=list)
    """Of unfinished work those that are planned."""
    failed: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    """Seeds of unfinished work that are finished."""
    accuracy: float | None = None
    """Mean test accuracy over the seeds that finished; None where it is none."""
    not_evaluated: str | None = None
    """Why there is no test accuracy of a finished run."""
    optimistic: bool = False
    """Whether the epoch was chosen on the test rows."""
    what: str | None = None
    """Of a damaged run what is wrong; of unfinished work who is at it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What ``gaam runs`` shows."""

    folders: tuple[str, ...]
    entries: tuple[Entry, ...]
    """Finished and damaged runs by name, then what is unfinished."""
    selection: Selection | None
    """What filters left out; damaged and unfinished entries are always listed."""

    @property
    def damage(self) -> bool:
        """Whether a run is damaged."""
        return any(entry.state == "damaged" for entry in self.entries)

    @property
    def bytes(self) -> int:
        """Of all entries."""
        return sum(entry.bytes for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "folders": list(self.folders),
            "bytes": self.bytes,
            "runs": [asdict(entry) for entry in self.entries],
            **({"selection": self.selection.to_dict()} if self.selection else {}),
        }


def list_runs(paths: Sequence[str | Path], filters: Filters) -> Listing:
    """Everything in folders of runs; single runs may be named too.

    Raises:
        NotFoundError: nothing there, finished, damaged or begun.
        ConfigError: a filter that means nothing.
        StorageError: a folder that cannot be read.
    """
    places = [Path(path).expanduser() for path in paths]
    found: dict[Path, Path] = {}
    begun: dict[Path, Path] = {}
    for place in places:
        runs = [place] if is_run(place) else run_folders(place)
        partial = [] if is_run(place) else unfinished_folders(place)
        if not runs and not partial:
            raise _nothing_in(place)
        for path in runs:
            found.setdefault(path.resolve(), path)
        for path in partial:
            begun.setdefault(path.resolve(), path)
    sound, damaged = check_all(list(found.values()))
    selection = None
    if filters:
        sound, selection = filters.choose(sound)
    entries: list[Entry] = []
    for run in sound:
        try:
            entries.append(_finished(run))
        except CacheError as error:
            damaged[run.path] = error
    entries += [_damaged(path, error) for path, error in damaged.items()]
    held = {parent: at_work(parent) for parent in {path.parent for path in begun.values()}}
    unfinished = [_unfinished(path, held[path.parent]) for path in begun.values()]
    return Listing(
        folders=tuple(str(place) for place in places),
        entries=(*sorted(entries, key=lambda entry: (entry.name, entry.path)), *unfinished),
        selection=selection,
    )


def _nothing_in(place: Path) -> NotFoundError:
    return NotFoundError(
        visible(f"no runs in '{place}'"),
        expected="a folder of runs, or a run",
        found="no run, finished or begun" if place.is_dir() else "no such folder",
        where=visible(str(place.absolute())),
        hint=near_run(place) or "make one with 'gaam train', or name another folder",
    )


def _finished(run: RunResult) -> Entry:
    made, why = published(run), None
    if not run.evaluated:
        why = "not evaluated"
    elif on_training_rows(run.recipe):
        why = "tested on its own training rows"
    elif run.shuffled:
        why = "labels shuffled"
    elif not run.finished:
        why = "no seed finished"
    return Entry(
        state="finished",
        name=run.path.name or run.path.resolve().name,
        path=str(run.path.absolute()),
        bytes=bytes_of(run.path),
        created=made.strftime(CREATED_FORMAT) if made else None,
        created_by_file=run.created is None,
        attention=run.attention,
        head=run.head,
        dataset=run.cache["dataset"],
        fingerprint=run.cache["fingerprint"],
        seeds=list(run.seeds),
        failed=sorted(run.failed),
        accuracy=None if why else float(run.accuracy.mean()),
        not_evaluated=why,
        optimistic=run.select == "test",
    )


def _damaged(path: Path, error: CacheError) -> Entry:
    return Entry(
        state="damaged",
        name=path.name or path.resolve().name,
        path=str(path.absolute()),
        bytes=bytes_of(path),
        what=" ".join(error.details["found"].split()),
    )


def _unfinished(path: Path, held: Sequence[Holding]) -> Entry:
    work = work_of(path.name)
    who = [one for one in held if is_at(one, work)]
    begun = begun_in(path)
    return Entry(
        state="unfinished",
        name=work,
        path=str(path.absolute()),
        bytes=bytes_of(path),
        attention=begun.title if begun else None,
        seeds=begun.planned if begun else [],
        done=begun.done if begun else [],
        what=who[0].in_words() if who else "nobody is at work on it",
    )
