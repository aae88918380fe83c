"""What ``gaam inspect`` says about runs: what they are, what is begun, who is at work on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines._claims import Holding, holdings
from gaam_cache.errors import CacheError
from gaam_cache.messages import duration, visible_values
from gaam_cache.store.digest import short_digest
from gaam_decoder.analysis.importance import NO_MAP, NO_MAP_OF_FINAL, importance_of
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import CLAIM_FOLDER, is_run, run_folders, unfinished_runs
from gaam_decoder.runs.loading import check_all, find_runs
from gaam_decoder.runs.result import fit_in_words, repair
from gaam_decoder.runs.tuning import on_training_rows
from gaam_decoder.training.checkpoint import look


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a run is, or the runs of a folder, and how far those are that are not finished."""

    about: dict[str, Any]
    """JSON values: of a run, or with the kind 'runs' of all in a folder."""

    @property
    def complete(self) -> bool:
        """Whether nothing that was begun is unfinished, and nobody is at work."""
        return bool(self.about.get("complete", True))

    @property
    def damage(self) -> list[dict[str, str]]:
        """Runs that are damaged: 'path', 'reason' and 'repair'."""
        return list(self.about.get("damage", []))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return self.about

    def in_words(self) -> str:
        """Lines for people."""
        about: dict[str, Any] = visible_values(self.about)
        return _of_folder(about) if about["kind"] == "runs" else _of_run(about)


def inspect(path: Path) -> Inspection:
    """Look at a run or a folder of runs; others may be training there.

    Raises:
        NotFoundError: nothing was trained there, or is being trained.
        StorageError: a run that cannot be read now.
    """
    alone = is_run(path)
    begun, held = list(look(path)), holdings(path / CLAIM_FOLDER)
    if held and not alone:
        sound, damaged = check_all(run_folders(path))
    else:
        sound, damaged, _ = find_runs([path])
    runs = []
    for run in sound:
        try:
            importance = importance_of([run])
            runs.append(run.to_dict() | {"importance": importance and importance.to_dict()})
        except CacheError as error:
            damaged[run.path] = error
    if alone and runs:
        return Inspection(runs[0])
    alive = sum(not one.dead for one in held)
    left = [work["seconds_left"] for work in begun if work["seconds_left"] is not None]
    about = {
        "kind": "runs",
        "path": str(path.absolute()),
        "complete": not unfinished_runs(path) and not alive,
        "unfinished": unfinished_runs(path),
        "begun": begun,
        "at_work": [asdict(one) for one in held],
        "seconds_left": sum(left) / alive if alive and left and len(left) == len(begun) else None,
        "runs": runs,
        "damage": [
            {
                "path": str(folder.absolute()),
                "reason": error.details["found"],
                "repair": repair(folder),
            }
            for folder, error in sorted(damaged.items())
        ],
    }
    return Inspection(about)


def _of_folder(about: dict[str, Any]) -> str:
    blocks = [_of_run(run) for run in about["runs"]]
    held = {one["name"]: Holding(**one).in_words() for one in about["at_work"]}
    for work in about["begun"]:
        done = f"{len(work['done'])} of {len(work['planned'])} seeds finished"
        blocks.append(f"unfinished: {work['title']}: {done}")
        for group in work["groups"]:
            epoch = f" epoch {group['epoch']}/{work['epochs']}" if group["epoch"] else ""
            who = held.pop(group["claim"], "nobody is at work on it")
            blocks.append(f"  seeds {spell_numbers(group['seeds'])}{epoch}: {who}")
    blocks += [f"  {name}: {who}" for name, who in held.items()]
    if about["seconds_left"] is not None:
        blocks.append(f"about {duration(about['seconds_left'])} left of what is begun")
    if about["unfinished"] and not about["at_work"]:
        blocks.append("nobody is at work: the same gaam train again goes on")
    blocks += [
        f"DAMAGED: {run['path']}: {run['reason']}; remove it: {run['repair']}; 'gaam train' "
        "makes it again, 'gaam verify' says how"
        for run in about["damage"]
    ]
    return "\n".join(blocks)


def _of_run(about: dict[str, Any]) -> str:
    recipe = ", ".join(f"{k}={v}" for k, v in about["recipe"].items() if v is not None)
    lines = [
        f"run {about['path']}",
        f"  decoder      {about['attention']} + {about['head']} head, "
        f"{about['parameters']['attention']:,} of {about['parameters']['total']:,} parameters "
        "in the attention",
        f"  cache        {short_digest(about['cache']['fingerprint'])}: "
        f"{about['cache']['dataset']} through {about['cache']['encoder']}",
        f"  recipe       {recipe}",
        *_groups_in_words(about.get("groups")),
        f"  run as       {_engine_in_words(about['engine'], fitted='fit' in about)}",
        *_majority_in_words(about["majority_accuracy"]),
    ]
    for seed in about["seeds"]:
        what = (
            f"failed: {seed['failed']}"
            if seed["failed"]
            else f"{_accuracy(about, seed['accuracy'])}{_kept(about, seed['epoch'])}"
        )
        lines.append(f"  seed {seed['seed']:<7} {what}, {seed['seconds']:.2f} s")
    return "\n".join([*lines, *_importance_in_words(about)])


def _majority_in_words(majority: float | None) -> list[str]:
    return [] if majority is None else [f"  majority     {100 * majority:.1f}%"]


def _accuracy(about: dict[str, Any], accuracy: float) -> str:
    """What came of a seed that finished."""
    if not about["evaluated"]:
        return "final model, not evaluated"
    return f"{100 * accuracy:.2f}% on {_tested_on(about['recipe'])}"


def _groups_in_words(groups: dict[str, str] | None) -> list[str]:
    """What folds kept together."""
    if not groups:
        return []
    kind = {"column": "kept column", "file": "file"}.get(groups["kind"], groups["kind"])
    return [f"  groups       by the {kind} {groups['source']}"]


def _kept(about: dict[str, Any], epoch: int) -> str:
    """What the rows that choose have chosen."""
    return f", {fit_in_words(about['fit'])}" if about.get("fit") else f", epoch {epoch}"


def _tested_on(recipe: dict[str, Any]) -> str:
    """What an accuracy of a run is of; never 'test' for rows that are not those of that split."""
    train, test = recipe.get("train_split", "train"), recipe.get("test_split", "test")
    if recipe.get("fold") is not None:
        return f"fold {recipe['fold']} of '{train}'"
    if on_training_rows(recipe):
        return f"'{test}', the rows that it learned from"
    # with the epoch that is best there, it is no estimate of what other rows would give
    return f"'{test}'" + (", which chose the epoch" if recipe.get("select") == "test" else "")


def _importance_in_words(about: dict[str, Any]) -> list[str]:
    importance = about["importance"]
    if importance is None:
        finished = any(not seed["failed"] for seed in about["seeds"])
        why = NO_MAP if about["evaluated"] else NO_MAP_OF_FINAL
        return [f"  importance   none: {why if finished else 'no seed finished'}"]
    lines = ["  importance   share of the summed attention map; mean importance factor (0 to 1)"]
    for layer in importance["layers"]:
        share, factor = f"{layer['contribution']:5.1f}%", f"{layer['factor']:.3f}"
        if layer["factor_sd"] is not None:
            share += f" (sd {layer['contribution_sd']:.1f})"
            factor += f" (sd {layer['factor_sd']:.3f})"
        lines.append(f"    layer {layer['layer']:<4} {share}; {factor}")
    return lines


def _engine_in_words(engine: dict[str, Any], *, fitted: bool) -> str:
    if fitted:
        return f"{engine['why']}, {engine['device']}"
    how = "compiled" if engine["compiled"] else "not compiled"
    together = f"up to {engine['seed_batch']} seeds together"
    return f"{together}, {how}, {engine['dtype']}, {engine['device']} ({engine['why']})"
