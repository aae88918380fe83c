"""The commands that give finished runs again, each proven to ask for what the run is."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError, GaamError
from gaam_cache.format.digest import short_digest
from gaam_cache.format.encoding import Encoding
from gaam_cache.format.planted import GAUSSIAN
from gaam_cache.messages import brief
from gaam_cache.rerun import extract_again
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.recipe import IMPLIED, Recipe
from gaam_decoder.rerun.commands import Rerun, train_command
from gaam_decoder.runs.find_cache import cache_of, plan_of
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_reader import RUN_FILE
from gaam_decoder.runs.tuning import TUNED, trained_to_choose
from gaam_decoder.training.items import recipes
from gaam_decoder.training.rows.groups import read_groups

STORED = "float32"
"""How states that were drawn are stored where nobody says otherwise."""
NO_OPTIONS = (*IMPLIED, "groups")
"""What a recipe holds that is no option; of groups it has a digest, and the run their source."""


def commands_of(runs: Sequence[RunResult]) -> Rerun:
    """Commands for a new folder, of runs on any caches.

    Raises:
        CacheError: no command gives one of the runs, or its cache.
    """
    by_cache: dict[str, list[RunResult]] = {}
    for run in runs:
        by_cache.setdefault(run.cache["fingerprint"], []).append(run)
    commands: list[str] = []
    notes = [_environment(runs)]
    for fingerprint, of in by_cache.items():
        out = Path("cache" if len(by_cache) == 1 else f"cache-{fingerprint[:8]}")
        notes.append(
            f"'{out}' has to get the fingerprint {short_digest(fingerprint)}: see gaam inspect"
        )
        commands.append(_extract(of[0], out))
        commands += (train_command(config) for config in _configs(of, out))
        notes += _notes(of)
    return Rerun(commands=(*commands, "gaam report runs"), notes=tuple(dict.fromkeys(notes)))


def _extract(run: RunResult, out: Path) -> str:
    """The command that makes the cache of a run: from its plan, or from what the run says."""
    if "planted" in run.cache:
        return _plant(run, out)
    try:
        plan = plan_of(run.cache, run.path)
    except GaamError as error:
        if "encoding" not in run.cache:
            raise CacheError(
                "no command makes the cache of this run again",
                expected="the cache, or a run of gaam 0.2 or later, which says how it was made",
                found=str(error).splitlines()[0],
                where=str((run.path / RUN_FILE).absolute()),
            ) from error
    else:
        return extract_again(plan, out)
    given = {"shard_rows": rows} if (rows := run.recipe.get("shard_rows")) else {}
    return extract_again(Encoding.from_dict(run.cache["encoding"]), out, **given)


def _plant(run: RunResult, out: Path) -> str:
    """The command that plants the labels of a cache again, where its states are Gaussian ones."""
    planted = run.cache["planted"]
    if planted["states"] != GAUSSIAN:
        raise CacheError(
            "no command makes the cache of this run again by itself",
            expected="labels planted in Gaussian states",
            found=f"in those of the cache {short_digest(brief(str(planted['states'])))}",
            where=str((run.path / RUN_FILE).absolute()),
            hint="gaam rerun of a run on that cache, then gaam plant --from it",
        )
    values = {
        "gate": planted["gate"],
        "strength": planted["strength"],
        "layers": run.cache["layers"],
        "width": run.cache["hidden_size"],
        "classes": len(run.cache["class_names"]),
        "rows": sum(run.cache["rows"].values()),
        "seed": planted["seed"],
    }
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    if (stored := run.cache.get("encoding", {}).get("storage_dtype", STORED)) != STORED:
        words += ["--storage-dtype", str(stored)]
    return shlex.join(["gaam", "plant", str(out), *words])


def _configs(runs: Sequence[RunResult], cache: Path) -> list[TrainConfig]:
    """One configuration for all mechanisms of the same recipe and seeds."""
    found: dict[str, TrainConfig] = {}
    for config in _folded(list(_tuned(runs, cache))):
        alike = repr(dataclasses.replace(config, attn=("gaam",)))
        before = found.get(alike)
        attn = (*before.attn, *config.attn) if before else config.attn
        found[alike] = dataclasses.replace(config, attn=tuple(dict.fromkeys(attn)))
    return list(found.values())


def _folded(configs: Sequence[TrainConfig]) -> Iterable[TrainConfig]:
    """One for all folds where they are all there, and where it asks for what they ask for.

    Folds whose rates were chosen stay apart: what chose them is a command of its own.
    """
    found: dict[str, list[TrainConfig]] = {}
    for config in configs:
        whole = dataclasses.replace(config, fold=None) if config.tune_seeds is None else config
        found.setdefault(repr(whole), []).append(config)
    for alike in found.values():
        whole = dataclasses.replace(alike[0], fold=None)
        if len(alike) > 1 and set(_recipes(whole)) == {r for one in alike for r in _recipes(one)}:
            yield whole
        else:
            yield from alike


def _recipes(config: TrainConfig) -> list[Recipe]:
    return recipes(config, config.dtype)  # type: ignore[arg-type]  # 'auto' is never kept


def _tuned(runs: Sequence[RunResult], cache: Path) -> Iterable[TrainConfig]:
    """One for every run; candidates and what was chosen of them are one."""
    families: dict[str, list[tuple[RunResult, TrainConfig]]] = {}
    for run in runs:
        config = config_of(run, cache)
        usual: dict[str, Any] = dict.fromkeys(TUNED, 1e-3)
        name = repr(dataclasses.replace(config, seeds=(0,), **usual))
        families.setdefault(name, []).append((run, config))
    for family in families.values():
        chose = [(run, config) for run, config in family if trained_to_choose(run)]
        rest = [(run, config) for run, config in family if not trained_to_choose(run)]
        if chose and rest and (whole := _whole_grid(chose, rest)):
            yield whole
        else:
            yield from _joined([config for _, config in family])


def _whole_grid(
    chose: Sequence[tuple[RunResult, TrainConfig]], rest: Sequence[tuple[RunResult, TrainConfig]]
) -> TrainConfig | None:
    """The sweep that trained a grid on some seeds and what they chose on others."""
    grid = {tuple(run.recipe[name] for name in TUNED) for run, _ in chose}
    values = [tuple(sorted({point[place] for point in grid})) for place in range(len(TUNED))]
    tuning = {run.tuning_seeds for run, _ in chose}
    of_grid = len(grid) == len(values[0]) * len(values[1])
    if not of_grid or len(tuning) != 1 or len({config.lr for _, config in rest}) != 1:
        return None
    seeds = sorted({seed for run, _ in rest for seed in run.seeds})
    of: dict[str, Any] = {n: v if len(v) > 1 else v[0] for n, v in zip(TUNED, values, strict=True)}
    return dataclasses.replace(rest[0][1], tune_seeds=tuning.pop(), seeds=tuple(seeds), **of)


def _joined(configs: Sequence[TrainConfig]) -> Iterable[TrainConfig]:
    """One for all seeds of the same recipe."""
    found: dict[str, list[TrainConfig]] = {}
    for config in configs:
        found.setdefault(repr(dataclasses.replace(config, seeds=(0,))), []).append(config)
    for alike in found.values():
        seeds = sorted({seed for config in alike for seed in config.seeds})
        yield dataclasses.replace(alike[0], seeds=tuple(seeds))


def config_of(run: RunResult, cache: Path) -> TrainConfig:
    """The configuration that asks for a run and nothing else.

    Raises:
        CacheError: none does.
    """
    given = {name: value for name, value in run.recipe.items() if name not in NO_OPTIONS}
    if run.recipe.get("groups"):
        given["groups"] = _groups(run)
    given |= {"attn": (run.attention,), "head": run.head, "seeds": run.seeds}
    try:
        if fold := given.pop("fold", None):
            number, _, count = str(fold).partition("/")
            given |= {"fold": int(number), "folds": int(count)}
        config = TrainConfig(**given, cache=cache, runs=Path("runs"), probe=False)
        (recipe,) = _recipes(config)
    except (GaamError, TypeError, ValueError) as error:
        raise _other(run, str(error)) from error
    asked = {k: v for k, v in recipe.to_dict().items() if k not in NO_OPTIONS}
    meant = {k: v for k, v in run.recipe.items() if k not in NO_OPTIONS}
    if (str(recipe.attention), str(recipe.head)) != (run.attention, run.head) or asked != meant:
        raise _other(run, ", ".join(_differ(asked, meant)) or "another decoder")
    return config


def _differ(asked: Mapping[str, Any], meant: Mapping[str, Any]) -> list[str]:
    names = sorted(asked.keys() | meant.keys())
    return [f"{n} {meant.get(n)}" for n in names if asked.get(n) != meant.get(n)]


def _other(run: RunResult, found: str) -> CacheError:
    return CacheError(
        f"no command of this version gives the run '{run.path.name}' again",
        expected="a recipe of settings that 'gaam train' has",
        found=" ".join(found.split()),
        where=str((run.path / RUN_FILE).absolute()),
    )


def _groups(run: RunResult) -> str:
    """Where the groups of a run are, if they are still those that it had."""
    source = run.groups.get("source")
    if source is None:
        raise _other(run, "groups of which it does not say where they were read")
    try:
        split = run.recipe.get("train_split", "train")
        found = read_groups(str(source), cache_of(run), split).digest
    except GaamError as error:
        raise _other(run, f"groups that cannot be read again: {error}") from error
    if found != run.recipe["groups"]:
        raise _other(run, f"groups that are not those of '{source}' any more")
    return str(source)


def _notes(runs: Sequence[RunResult]) -> list[str]:
    notes = []
    for run in runs:
        if theirs := run.recipe.get("plugins"):
            which = ", ".join(f"{what} ({code})" for what, code in sorted(theirs.items()))
            notes.append(f"plug-ins of other packages have to be installed: {which}")
        if run.failed:
            failed = spell_numbers(sorted(run.failed))
            notes.append(f"{run.path.name}: seed {failed} failed, and may fail again")
    return notes


def _environment(runs: Sequence[RunResult]) -> str:
    """What the bits depend on beside the commands."""
    names = ("torch", "numpy", "python", "device", "threads")
    parts = []
    for name in names:
        values = sorted({str(run.environment.get(name, "unknown")) for run in runs})
        parts.append(f"{name} {' and '.join(values)}")
    return f"the same bits come of the same versions, device and threads: {', '.join(parts)}"
