"""What the commands of a study would cost, as far as that can be told before they run."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.cache import open_cache
from gaam_cache.errors import GaamError, NotFoundError
from gaam_cache.format.targets import check_folder
from gaam_cache.messages.duration import duration
from gaam_cache.messages.foreign_text import brief
from gaam_decoder.analysis.ablate import trainings
from gaam_decoder.studying.place import Place, environment
from gaam_decoder.studying.recipe import Study
from gaam_decoder.studying.running import ablated, arguments, typed, with_us
from gaam_decoder.studying.step import Step
from gaam_decoder.training.estimate import estimate as estimate_training

NO_ESTIMATE = "no estimate"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one command would cost, in words; ``seconds`` where that can be known."""

    command: str
    words: str
    seconds: float | None


def estimate(study: Study, place: Place) -> Iterator[Cost]:
    """What every step would cost, as the commands themselves say; nothing is written."""
    check_folder(place.out, option="--out")
    for step in study.steps:
        try:
            words = arguments(step, study, place)
        except NotFoundError:
            yield Cost(
                command=f"gaam ablate RUN {shlex.join(step.words())}",
                words=f"{NO_ESTIMATE} before its run is there",
                seconds=None,
            )
            continue
        yield _cost(step, words, study, place)


def _cost(step: Step, words: list[str], study: Study, place: Place) -> Cost:
    command = typed(words)
    if step.makes and _complete(place.cache(step.makes)):
        words_of_it = "there is one, which the command compares with these options"
        return Cost(command=command, words=words_of_it, seconds=0.0)
    if step.command == "plant":
        what = f"{NO_ESTIMATE}: it draws states and labels, and trains nothing"
        return Cost(command=command, words=what, seconds=None)
    if step.command == "ablate":
        return _of_ablation(step, command, study, place)
    if step.reads and not _complete(place.cache(step.reads)):
        what = f"{NO_ESTIMATE} before the cache '{step.reads}' is there"
        return Cost(command=command, words=what, seconds=None)
    done = subprocess.run(
        [*with_us(), *words, "--dry-run", "--json"],
        capture_output=True,
        check=False,
        text=True,
        env=environment(),
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        seconds = found.get("seconds")
    except ValueError:
        error = done.stderr.strip().splitlines()
        what = f"{NO_ESTIMATE}: {brief('; '.join(error) or 'the command says none')}"
        return Cost(command=command, words=what, seconds=None)
    if step.command == "train":
        return _of_trainings(command, sum(run["num_seeds"] for run in found["runs"]), seconds)
    return Cost(command=command, words="" if seconds is not None else NO_ESTIMATE, seconds=seconds)


def _of_ablation(step: Step, command: str, study: Study, place: Place) -> Cost:
    """Of its trainings: which layers they are of follows from the run."""
    options = {k: v for k, v in step.options.items() if k in ("num_layers", "seed")}
    try:
        run = ablated(step, study, place)
        configs = trainings(run, device=place.device or "auto", **options)
        found = [estimate_training(config) for config in configs]
    except GaamError as error:
        return Cost(command=command, words=f"{NO_ESTIMATE}: {brief(str(error))}", seconds=None)
    number = sum(run.num_seeds for one in found for run in one.runs)
    return _of_trainings(command, number, sum(one.seconds for one in found))


def _of_trainings(command: str, number: int, seconds: float | None) -> Cost:
    what = f"{number:,} trainings" if number else "is there"
    return Cost(command=command, words=what, seconds=seconds)


def _complete(cache: Path) -> bool:
    """Whether every shard of a cache is there."""
    try:
        open_cache(cache)
    except (GaamError, OSError):
        return False
    return True


def costs_values(costs: Sequence[Cost]) -> dict[str, Any]:
    """JSON values of what the commands would cost; ``seconds`` is null where none is known."""
    known = [cost.seconds for cost in costs if cost.seconds is not None]
    return {
        "seconds": sum(known) if known else None,
        "unknown": len(costs) - len(known),
        "commands": [
            {"command": cost.command, "cost": cost.words, "seconds": cost.seconds} for cost in costs
        ],
    }


def costs_in_words(costs: Sequence[Cost]) -> str:
    """What the commands would cost, one after the other, and together."""
    lines = []
    for cost in costs:
        about = f"about {duration(cost.seconds)}" if cost.seconds else ""
        lines += [cost.command, f"  # {', '.join(part for part in (cost.words, about) if part)}"]
    return "\n".join([*lines, f"# {_total(costs)}"])


def _total(costs: Sequence[Cost]) -> str:
    seconds = sum(cost.seconds or 0.0 for cost in costs)
    unknown = sum(cost.seconds is None for cost in costs)
    without = f"{unknown} of {len(costs)} commands have no estimate"
    if not unknown:
        return f"together about {duration(seconds)}" if seconds else "nothing is left to be made"
    if not seconds:
        return f"how long all of it takes is not known: {without}"
    return f"about {duration(seconds)} and what is not known: {without}"
