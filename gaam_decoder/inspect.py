"""What ``gaam inspect``, ``gaam runs`` and ``gaam verify`` say about runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import OutOfReachError
from gaam_cache.common.messages import brief, visible_values
from gaam_cache.common.paths import absolute_path
from gaam_cache.workers.leases import Holding, holdings
from gaam_decoder.analysis.importance import importance_of
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import (
    LEASE_FOLDER,
    is_run,
    run_folders,
    unfinished_folders,
)
from gaam_decoder.runs.loading import Progress, Runs, find_runs, once
from gaam_decoder.runs.result import RunResult, read_run
from gaam_decoder.runs.tuning import on_training_rows
from gaam_decoder.training.checkpoint import look

OUT_OF_REACH = "out of reach"
BAD = ("damaged", OUT_OF_REACH)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a run is, or all that lies in folders of runs: finished, damaged, unfinished."""

    about: dict[str, Any]  # JSON values: of a run, or with the kind 'runs' of several

    @property
    def complete(self) -> bool:
        """Whether nothing that was begun is unfinished, and nobody is at work."""
        return bool(self.about.get("complete", True))

    @property
    def damage(self) -> list[dict[str, Any]]:
        """Runs that are damaged or out of reach: 'path', 'what' and 'repair' among other things."""
        return [one for one in self.about.get("runs", ()) if one["state"] in BAD]

    @property
    def good(self) -> bool:
        """Whether every run can be read, and none is damaged."""
        return not self.damage

    def to_dict(self) -> dict[str, Any]:
        return self.about

    def in_words(self) -> str:
        about: dict[str, Any] = visible_values(self.about)
        return _of_folders(about) if about["kind"] == "runs" else _of_run(about)


def inspect(path: Path) -> Inspection:
    """Look at a run or a folder of runs; NotFoundError where nothing is or is being trained."""
    path = absolute_path(path)
    found = list_runs(path)
    if not is_run(path) or found.damage:
        return found
    importance = importance_of([read_run(path)])
    return Inspection(
        found.about["runs"][0] | {"importance": importance and importance.to_dict()}
    )


def list_runs(
    paths: str | Path | Sequence[str | Path],
    *,
    whole: bool = False,
    progress: Progress = lambda done, total, text: None,
    **filters: Any,
) -> Inspection:
    """All that lies in folders of runs, of what is finished what ``filters`` of ``load_runs`` mean.

    ``whole`` hashes every byte.
    """
    several = [paths] if isinstance(paths, (str, Path)) else paths
    places = once(several)
    sound, damaged, _ = find_runs(places, whole=whole, progress=progress)
    runs = Runs(sound).selected(**filters)
    entries = [_finished(run) for run in runs]
    for path, error in damaged.items():
        said = {"what": error.details["found"], "repair": error.details["to do"]}
        state = OUT_OF_REACH if isinstance(error, OutOfReachError) else "damaged"
        entries.append(_entry(path, state, said))
    entries.sort(key=lambda entry: (entry["name"], entry["path"]))
    held = [one for place in places for one in holdings(place / LEASE_FOLDER)]
    begun = [(place / work["folder"], work) for place in places for work in look(place)]
    alive = any(not one.dead for one in held)
    about = {
        "kind": "runs",
        "folders": [str(place) for place in places],
        "good": not damaged,
        "complete": not (begun or alive),
        "whole": whole,
        "runs": entries + [_entry(path, "unfinished", work) for path, work in begun],
        "at_work": [asdict(one) for one in held],
    }
    return Inspection(
        about | ({"selection": runs.selection.to_dict()} if runs.selection else {})
    )


def is_runs(path: Path) -> bool:
    """Whether runs lie there, finished, damaged or begun, or ``path`` is one."""
    return bool(is_run(path) or run_folders(path) or unfinished_folders(path))


def _finished(run: RunResult) -> dict[str, Any]:
    what = run.in_words() + ", tested on its own training rows" * on_training_rows(
        run.recipe
    )
    what += f", {run.cache['dataset']} {run.cache['fingerprint'][:8]}"
    accuracy = float(run.accuracy.mean()) if run.accuracy.size else None
    return _entry(
        run.path, "finished", run.to_dict() | {"what": what, "accuracy": accuracy}
    )


def _entry(path: Path, state: str, known: dict[str, Any]) -> dict[str, Any]:
    size = sum(file.stat().st_size for file in path.glob("*") if file.exists())
    about = {
        "state": state,
        "name": path.name,
        "path": str(path.absolute()),
        "bytes": size,
    }
    return known | about


def _of_folders(about: dict[str, Any]) -> str:
    """Of every entry its name and what it is; below them who is at work, and the counts."""
    lines = []
    held = {one["name"]: Holding(**one).in_words() for one in about["at_work"]}
    for one in about["runs"]:
        if about["whole"] and one["state"] == "finished":
            continue
        made, size = (one.get("created") or "")[:10], f"{one['bytes'] / 1e6:,.2f} MB"
        lines.append("  ".join(filter(None, (one["name"], made, size))))
        if one["state"] == "finished":
            lines.append(f"  {brief(one['what'], 300)}")
        elif one["state"] in BAD:
            lines += [
                f"  {one['state'].upper()}: {one['what']}",
                f"  to do: {one['repair']}",
            ]
        else:
            done = f"{len(one['done'])} of {len(one['planned'])} seeds finished"
            lines.append(f"  UNFINISHED: {one['title']}: {done}")
            for group in one["groups"]:
                epoch = (
                    f" epoch {group['epoch']}/{one['epochs']}" if group["epoch"] else ""
                )
                who = held.pop(group["claim"], "nobody is at work on it")
                lines.append(f"    seeds {spell_numbers(group['seeds'])}{epoch}: {who}")
    lines += [f"  {name}: {who}" for name, who in held.items()]
    states = Counter(one["state"] for one in about["runs"])
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    lines.append(counts + ", every byte hashed" * about["whole"])
    if selection := about.get("selection"):
        asked = " ".join(selection["asked"])
        lines.append(
            f"{selection['runs']:,} of {selection['of_runs']:,} runs ({asked})"
        )
    lines += ["unfinished: the same gaam train goes on"] if states["unfinished"] else []
    return "\n".join(lines)


def _of_run(about: dict[str, Any]) -> str:
    parameters, lines = (
        about["parameters"],
        [f"run {about['path']}", f"  what  {about['what']}"],
    )
    lines.append(f"  encoder  {about['cache']['encoder']}")
    lines.append(
        f"  parameters  {parameters['total']:,}, {parameters['attention']:,} in attention"
    )
    for name in ("recipe", "engine"):
        settings = (
            f"{k}={value}" for k, value in about[name].items() if value is not None
        )
        lines.append(f"  {name}  {', '.join(settings)}")
    for seed in about["seeds"]:
        said = (
            f"failed: {seed['failed']}" if seed["failed"] else f"epoch {seed['epoch']}"
        )
        said += "" if seed["accuracy"] is None else f", {100 * seed['accuracy']:.2f}%"
        lines.append(f"  seed {seed['seed']:<4} {said}, {seed['seconds']:.2f} s")
    if about["importance"]:
        lines.append(
            "  importance: share of the summed attention map; mean factor (0 to 1)"
        )
        for one in about["importance"]["layers"]:
            share = f"{one['contribution']:5.1f}%; {one['factor']:.3f}"
            lines.append(f"    layer {one['layer']:<4} {share}")
    return "\n".join(lines)
