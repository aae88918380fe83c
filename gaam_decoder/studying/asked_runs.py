"""Whether the runs of a study are those that its recipe asks for: no more, and all of them.

A table is of all runs in a folder, and what it says of one row depends on the others: which rate
was chosen, how many tests are corrected for. So a run that an earlier recipe left, or that somebody
put there, is refused and not passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gaam_cache.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.messages import brief
from gaam_decoder.analysis.ablate import trainings
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import run_folders
from gaam_decoder.runs.result import RunResult, read_run
from gaam_decoder.studying.finding import FILE, find_beside
from gaam_decoder.studying.place import Place
from gaam_decoder.studying.recipe import Study, read_study
from gaam_decoder.studying.running import ablated, choice_of_layers, config_of
from gaam_decoder.training.wanted import Wanted, wanted

MOST_NAMED = 20
"""Runs that a message lists."""


def check_runs(study: Study, place: Place) -> None:
    """Check the runs of a study, and of others whose runs stand beside them in a report.

    Raises:
        NotFoundError: runs are missing, or a study has no recipe.
        ConfigError: runs, or seeds of some, that no step asks for.
        CacheError: a cache is not complete.
    """
    others = {name for asked in study.reports for name in asked.studies} - {study.name}
    for one in (
        study,
        *(read_study(find_beside(name, study.folder).parent) for name in sorted(others)),
    ):
        _check(one, place)


def check_strangers(study: Study, place: Place) -> None:
    """Refuse runs that no step can ask for, before anything is trained; as far as that is known.

    What an ablation trains, and what is learned from a cache that is not there, nobody knows yet.

    Raises:
        ConfigError: runs, or seeds of some, that no step asks for.
    """
    found = list(_found(place.runs(study.name)))
    asked: dict[str, Wanted] = {}
    if not found or any(step.command == "ablate" for step in study.steps):
        return
    try:
        _ask(asked, "train", study, place, at_most=True)
    except (GaamError, OSError):
        return  # which the step itself says
    _refuse_strangers(asked, found, study, place)


def _check(study: Study, place: Place) -> None:
    found = list(_found(place.runs(study.name)))
    asked: dict[str, Wanted] = {}
    for command in ("train", "ablate"):  # which run is ablated is known when all are there
        _ask(asked, command, study, place)
        _check_there(asked, found, study, place)
    _refuse_strangers(asked, found, study, place)


def _refuse_strangers(
    asked: Mapping[str, Wanted], found: Sequence[RunResult], study: Study, place: Place
) -> None:
    folder = place.runs(study.name)
    if strangers := [line for run in found if (line := _stranger(run, asked))]:
        raise ConfigError(
            f"runs that the study '{study.name}' does not ask for: nothing is reported",
            expected=f"the runs that {study.folder / FILE} asks for, as rows of a table depend on "
            "one another",
            found=_listed(strangers),
            where=str(folder.absolute()),
            hint="mv them elsewhere, or --out another folder",
        )


def _check_there(
    asked: Mapping[str, Wanted], found: Sequence[RunResult], study: Study, place: Place
) -> None:
    there = {(run.key, seed) for run in found for seed in run.seeds}
    missing = [
        f"{one.item}: seeds {spell_numbers(lacking)}"
        for key, one in asked.items()
        if one.needed and (lacking := sorted(s for s in one.seeds if (key, s) not in there))
    ]
    if missing:
        raise NotFoundError(
            f"{len(missing)} runs of the study '{study.name}' are missing: nothing is reported",
            expected=_listed(missing),
            where=str(place.runs(study.name).absolute()),
            hint=f"gaam study {study.name} --out {place.out} trains them",
        )


def _ask(
    asked: dict[str, Wanted], command: str, study: Study, place: Place, *, at_most: bool = False
) -> None:
    """Add the runs that all steps of a command leave, by key."""
    for step in study.steps:
        if step.command != command:
            continue
        if command == "train":
            configs = [config_of(step, study, place)]
        else:
            device = place.device or "auto"
            run = ablated(step, study, place)
            configs = trainings(run, device=device, **choice_of_layers(step))
        for config in configs:
            for key, one in wanted(config, at_most=at_most).items():
                asked[key] = one.also(asked.get(key))


def _found(folder: Path) -> Iterator[RunResult]:
    for path in run_folders(folder):
        try:
            yield read_run(path)
        except CacheError:
            continue  # damaged, which the report says with its reason


def _stranger(run: RunResult, asked: Mapping[str, Wanted]) -> str | None:
    """What of a run nobody asks for."""
    name = brief(run.path.name)
    if run.key not in asked:
        return name
    one = asked[run.key]
    if others := sorted(set(run.seeds) - one.seeds):
        return f"{name} (seeds {spell_numbers(others)})"
    if not run.fit and tuple(sorted(run.tuning_seeds)) not in one.tunings:
        # a report takes from the runs which seeds choose, and leaves these out
        chose = f"seeds {spell_numbers(run.tuning_seeds)}" if run.tuning_seeds else "no seeds"
        return f"{name} (trained where {chose} choose)"
    return None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return "; ".join(names[:MOST_NAMED]) + more
