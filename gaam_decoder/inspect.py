"""What ``gaam inspect`` says about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError
from gaam_cache.format.digest import short_digest
from gaam_decoder.analysis.importance import NO_MAP, NO_MAP_OF_FINAL, importance_of
from gaam_decoder.runs.counting import on_training_rows
from gaam_decoder.runs.loading import sound_runs
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_files import repair
from gaam_decoder.runs.run_folders import is_run, unfinished_runs
from gaam_decoder.runs.summary import fit_in_words


def describe(path: Path) -> dict[str, Any]:
    """A run or a folder of runs as JSON values; what is damaged stands under ``damage``.

    Raises:
        NotFoundError: no finished run there, whole or damaged.
        StorageError: one that cannot be read now.
    """
    sound, damaged = sound_runs(path)
    runs = []
    for run in sound:
        try:
            runs.append(_describe_run(run))
        except CacheError as error:
            damaged[run.path] = error
    if is_run(path) and runs:
        return runs[0]
    return {
        "kind": "runs",
        "path": str(path.absolute()),
        "unfinished": unfinished_runs(path),
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


def _describe_run(run: RunResult) -> dict[str, Any]:
    importance = importance_of([run])
    return run.to_dict() | {"importance": importance and importance.to_dict()}


def in_words(about: dict[str, Any]) -> str:
    """The result of ``describe`` as lines for people."""
    if about["kind"] == "runs":
        blocks = [in_words(run) for run in about["runs"]]
        blocks += [f"unfinished: {name}" for name in about["unfinished"]]
        blocks += [
            f"DAMAGED: {run['path']}: {run['reason']}; remove it: {run['repair']}; 'gaam train' "
            "makes it again, 'gaam verify' says how"
            for run in about["damage"]
        ]
        return "\n".join(blocks)
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
