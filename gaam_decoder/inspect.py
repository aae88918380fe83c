"""Describe runs, for ``gaam inspect``, ``gaam runs`` and ``gaam verify``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import CacheError, OutOfReachError
from gaam_cache.common.messages import brief, size_in_words, visible_values
from gaam_cache.common.paths import absolute_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.workers.leases import Holding, holdings
from gaam_decoder.analysis.importance import importance_of
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import (
    LEASE_FOLDER,
    is_run,
    run_folders,
    unfinished_folders,
)
from gaam_decoder.runs.loading import Runs, find_runs, unique_paths
from gaam_decoder.runs.read import read_run
from gaam_decoder.runs.records import FitRecord
from gaam_decoder.runs.result import RunResult
from gaam_decoder.training.checkpoint import describe_unfinished

OUT_OF_REACH = "out of reach"
BAD = ("damaged", OUT_OF_REACH)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state of a run, or of all runs in folders: finished, damaged, unfinished."""

    values: dict[str, Any]
    """JSON values, of one run, or of several with the kind 'runs'."""

    @property
    def complete(self) -> bool:
        """Whether no run is unfinished and no training is at work."""
        return bool(self.values.get("complete", True))

    @property
    def damage(self) -> list[dict[str, Any]]:
        """The runs that are damaged or out of reach, with 'path', 'what', 'repair'."""
        return [entry for entry in self.values.get("runs", ()) if entry["state"] in BAD]

    @property
    def good(self) -> bool:
        """Whether every run can be read, and none is damaged."""
        return not self.damage

    def to_dict(self) -> dict[str, Any]:
        """The JSON values."""
        return self.values

    def in_words(self) -> str:
        """Lines for people."""
        # names from elsewhere may have control characters: escape them for a terminal
        values: dict[str, Any] = visible_values(self.values)
        if values["kind"] == "runs":
            return _folders_in_words(values)
        return _run_in_words(values)


def inspect(path: Path) -> Inspection:
    """Inspect a folder of runs, or a run with the importance that it gives to layers.

    Raises:
        NotFoundError: there are no runs.
    """
    path = absolute_path(path)
    inspection = list_runs(path)
    if not is_run(path) or inspection.damage:
        return inspection
    run_values = inspection.values["runs"][0]
    run = read_run(path)
    if not run.evaluated:
        # a final model leaves out no fold; the runs of the folds tell what to expect
        # imported late: it imports torch, which a list of runs does not need
        from gaam_decoder.use.load import cross_validations_in_words

        lines = [run_values["what"], *cross_validations_in_words(run)]
        run_values["what"] = "; ".join(lines)
    importance = importance_of([run])
    importance_values = None if importance is None else importance.to_dict()
    return Inspection(run_values | {"importance": importance_values})


def list_runs(
    paths: str | Path | Sequence[str | Path],
    *,
    whole: bool = False,
    progress: ReportProgress = no_progress,
    **filters: Any,
) -> Inspection:
    """List the runs in folders: finished, damaged and unfinished ones.

    The values of the result also name the trainings that are at work now, by their
    leases: a lease is a file by which a process announces what it trains.

    Args:
        paths: runs, and folders of runs.
        whole: hash all files of every run, not the test results alone.
        progress: called after each run.
        filters: filters of ``load_runs``, for the finished runs.
    """
    folders = unique_paths([paths] if isinstance(paths, (str, Path)) else paths)
    sound, damaged, _unfinished = find_runs(folders, whole=whole, progress=progress)
    runs = Runs(sound).selected(**filters)
    has_several_encoders = len({run.cache.encoder for run in runs}) > 1
    entries = [_finished_entry(run, name_encoder=has_several_encoders) for run in runs]
    entries += [_damaged_entry(path, error) for path, error in damaged.items()]
    # decoders first, then the runs of tuning seeds
    candidates = {str(run.path.absolute()) for run in runs if run.tuning_only}
    entries.sort(
        key=lambda entry: (entry["path"] in candidates, entry["name"], entry["path"])
    )

    leases = [lease for folder in folders for lease in holdings(folder / LEASE_FOLDER)]
    unfinished = [
        _entry(folder / values["folder"], "unfinished", values)
        for folder in folders
        for values in describe_unfinished(folder)
    ]
    is_anybody_at_work = any(not lease.dead for lease in leases)
    values = {
        "kind": "runs",
        "folders": [str(folder) for folder in folders],
        "good": not damaged,
        "complete": not (unfinished or is_anybody_at_work),
        "whole": whole,
        "runs": entries + unfinished,
        "at_work": [asdict(lease) for lease in leases],
    }
    if runs.selection:
        values["selection"] = runs.selection.to_dict()
    return Inspection(values)


def has_runs(path: Path) -> bool:
    """Whether ``path`` is a run or has any: finished, damaged or unfinished."""
    return bool(is_run(path) or run_folders(path) or unfinished_folders(path))


def _finished_entry(run: RunResult, *, name_encoder: bool) -> dict[str, Any]:
    """The JSON values of a finished run: ``what`` is a line about its result.

    Args:
        run: the run.
        name_encoder: whether the line names the encoder, as the title of a report does.
    """
    text = run.in_words()
    if run.recipe.on_training_rows:
        text += ", tested on its own training rows"
    text += f", {run.cache.dataset}"
    if name_encoder:
        text += f" through {brief(run.cache.encoder)}"
    # the cache, by the first digits of its fingerprint
    text += f" {run.cache.fingerprint[:8]}"
    score = float(run.score.mean()) if run.score.size else None
    values = run.to_dict() | {"what": text, run.task_definition.score_key: score}
    return _entry(run.path, "finished", values)


def _damaged_entry(path: Path, error: CacheError) -> dict[str, Any]:
    """The JSON values of a run that cannot be read, with a way to repair it."""
    values = {"what": error.details["found"], "repair": error.details["to do"]}
    state = OUT_OF_REACH if isinstance(error, OutOfReachError) else "damaged"
    return _entry(path, state, values)


def _entry(path: Path, state: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run folder, with its state, name, path and size in bytes."""
    # a link may lead nowhere
    size = sum(file.stat().st_size for file in path.glob("*") if file.exists())
    return {
        **values,
        "state": state,
        "name": path.name,
        "path": str(path.absolute()),
        "bytes": size,
    }


def _folders_in_words(values: dict[str, Any]) -> str:
    """Each run with its state, then workers that train no listed run, then the counts.

    Args:
        values: what ``to_dict`` gives; ``whole`` is true for ``gaam verify``.
    """
    worker_by_lease = {
        lease["name"]: Holding(**lease).in_words() for lease in values["at_work"]
    }
    is_anybody_at_work = any(not lease["dead"] for lease in values["at_work"])
    lines: list[str] = []
    for entry in values["runs"]:
        # 'gaam verify' shows only the runs that need attention.
        if values["whole"] and entry["state"] == "finished":
            continue
        # a worker of an unfinished run is shown there, and taken out of the dictionary
        lines += _entry_in_words(entry, worker_by_lease)
    lines += [f"  {lease}: {worker}" for lease, worker in worker_by_lease.items()]

    states = Counter(entry["state"] for entry in values["runs"])
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    if values["whole"]:
        counts += ", every byte hashed"
    lines.append(counts)

    selection = values.get("selection")
    if selection:
        filters = " ".join(selection["asked"])
        lines.append(
            f"{selection['runs']:,} of {selection['of_runs']:,} runs ({filters})"
        )
    if states["unfinished"] and not is_anybody_at_work:
        lines.append("unfinished: run the same 'gaam train' command again to continue")
    return "\n".join(lines)


def _entry_in_words(
    entry: dict[str, Any], worker_by_lease: dict[str, str]
) -> list[str]:
    """The lines of one run; removes its workers from ``worker_by_lease``."""
    created = (entry.get("created") or "")[:10]
    size = size_in_words(entry["bytes"])
    # a run that is not finished has no date
    heading = [text for text in (entry["name"], created, size) if text]
    lines = ["  ".join(heading)]
    if entry["state"] == "finished":
        lines.append(f"  {brief(entry['what'], 300)}")
    elif entry["state"] in BAD:
        lines.append(f"  {entry['state'].upper()}: {entry['what']}")
        lines.append(f"  to do: {entry['repair']}")
    else:
        lines += _unfinished_in_words(entry, worker_by_lease)
    return lines


def _unfinished_in_words(
    entry: dict[str, Any], worker_by_lease: dict[str, str]
) -> list[str]:
    """How many seeds are finished, and who trains each seed batch.

    Args:
        entry: JSON values of a run, as ``describe_unfinished`` gives them.
        worker_by_lease: name of a lease -> words about the worker that has it. The
            workers of this run are removed, so that those of no run remain.
    """
    progress = f"{len(entry['done'])} of {len(entry['planned'])} seeds finished"
    lines = [f"  UNFINISHED: {entry['title']}: {progress}"]
    # in the JSON a seed batch is called a group, and the name of its lease a claim
    for seed_batch in entry["groups"]:
        noun = "seeds" if len(seed_batch["seeds"]) > 1 else "seed"
        text = f"    {noun} {spell_numbers(seed_batch['seeds'])}"
        if seed_batch["epoch"]:
            text += f" epoch {seed_batch['epoch']}/{entry['epochs']}"
        worker = worker_by_lease.pop(seed_batch["claim"], "no worker trains it now")
        lines.append(f"{text}: {worker}")
    return lines


def _run_in_words(values: dict[str, Any]) -> str:
    """Lines about a finished run: decoder, settings, seeds and importance of layers."""
    parameters = values["parameters"]
    lines = [
        f"run {values['path']}",
        f"  what  {values['what']}",
        f"  encoder  {values['cache']['encoder']}",
        f"  parameters  {parameters['total']:,}, "
        f"{parameters['attention']:,} in attention",
    ]
    for name in ("recipe", "engine"):
        settings = [
            f"{key}={value}" for key, value in values[name].items() if value is not None
        ]
        lines.append(f"  {name}  {', '.join(settings)}")
    lines += [_seed_in_words(seed, values.get("fit")) for seed in values["seeds"]]
    if values["importance"]:
        lines.append(
            "  importance: share of the summed attention map; mean factor (0 to 1)"
        )
        for layer in values["importance"]["layers"]:
            shares = f"{layer['contribution']:5.1f}%; {layer['factor']:.3f}"
            lines.append(f"    layer {layer['layer']:<4} {shares}")
    return "\n".join(lines)


def _seed_in_words(seed: dict[str, Any], fit: dict[str, Any] | None) -> str:
    """One line about a seed of a run: its epoch or failure, its score, its time.

    A head that was fitted in one step has no epoch, but a chosen value: ``fit``.
    """
    result = f"epoch {seed['epoch']}"
    if fit:
        result = FitRecord(**fit).in_words()
    if seed["failed"]:
        result = f"failed: {seed['failed']}"
    if seed.get("accuracy") is not None:
        result += f", {100 * seed['accuracy']:.2f}%"
    if seed.get("score") is not None:
        result += f", score {seed['score']:.4f}"
    return f"  seed {seed['seed']:<4} {result}, {seed['seconds']:.2f} s"
