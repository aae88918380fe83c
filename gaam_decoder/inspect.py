"""What ``gaam inspect`` says about runs: what they are, what is begun, who is at work on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaam_cache.engines._claims import Holding, holdings
from gaam_cache.messages import duration, visible_values
from gaam_cache.store.digest import short_digest
from gaam_decoder.analysis.importance import NO_MAP, NO_MAP_OF_FINAL, importance_of
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import CLAIM_FOLDER, is_run, run_folders, unfinished_folders, work_of
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
        importance = importance_of([run])
        runs.append(run.to_dict() | {"importance": importance and importance.to_dict()})
    if alone and runs:
        return Inspection(runs[0])
    alive = sum(not one.dead for one in held)
    unfinished = [work_of(folder.name) for folder in unfinished_folders(path)]
    left = [work["seconds_left"] for work in begun]
    about = {
        "kind": "runs",
        "path": str(path.absolute()),
        "complete": not unfinished and not alive,
        "unfinished": unfinished,
        "begun": begun,
        "at_work": [asdict(one) for one in held],
        "seconds_left": sum(left) / alive if alive and left and None not in left else None,
        "runs": runs,
        "damage": [
            {"path": str(of.absolute()), "reason": one.details["found"], "repair": repair(of)}
            for of, one in sorted(damaged.items())
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
    for run in about["damage"]:
        blocks.append(f"DAMAGED: {run['path']}: {run['reason']}; remove it: {run['repair']}")
    return "\n".join(blocks)


def _of_run(about: dict[str, Any]) -> str:
    parameters, engine, cache = about["parameters"], about["engine"], about["cache"]
    how = {"seeds together": engine["seed_batch"], "compiled": engine["compiled"]}
    how |= {"dtype": engine["dtype"], "device": engine["device"], "why": engine["why"]}
    lines = [
        f"run {about['path']}",
        f"  decoder      {about['attention']} + {about['head']} head, "
        f"{parameters['attention']:,} of {parameters['total']:,} parameters in the attention",
        f"  cache        {short_digest(cache['fingerprint'])}: {cache['dataset']} through "
        f"{cache['encoder']}",
        f"  recipe       {_settings(about['recipe'])}",
        f"  run as       {_settings(how)}",
    ]
    recipe = about["recipe"]
    tested = f"'{recipe['test_split']}'" + ", which chose the epoch" * (recipe["select"] == "test")
    if recipe["fold"]:
        tested = f"fold {recipe['fold']} of '{recipe['train_split']}'"
    elif on_training_rows(recipe):
        tested = f"'{recipe['test_split']}', the rows that it learned from"
    for seed in about["seeds"]:
        said = f"failed: {seed['failed']}"
        if not seed["failed"]:
            said = "final model, not evaluated"
            if about["evaluated"]:
                said = f"{100 * seed['accuracy']:.2f}% on {tested}"
            fit = about.get("fit")
            said += f", {fit_in_words(fit)}" if fit else f", epoch {seed['epoch']}"
        lines.append(f"  seed {seed['seed']:<7} {said}, {seed['seconds']:.2f} s")
    if (importance := about["importance"]) is None:
        why = NO_MAP if about["evaluated"] else NO_MAP_OF_FINAL
        why = "no seed finished" if all(seed["failed"] for seed in about["seeds"]) else why
        return "\n".join([*lines, f"  importance   none: {why}"])
    lines.append("  importance   share of the summed attention map; mean factor (0 to 1)")
    lines += [
        f"    layer {one['layer']:<4} {one['contribution']:5.1f}%; {one['factor']:.3f}"
        for one in importance["layers"]
    ]
    return "\n".join(lines)


def _settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items() if value is not None)
