"""What the commands of a study would cost, as far as that can be told before they run."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.errors import GaamError, GaamWarning, HubError, NotFoundError
from gaam_cache.expected import ExpectedCache
from gaam_cache.extraction.estimate import estimate_and_plan
from gaam_cache.format.targets import check_folder
from gaam_cache.messages import brief, duration
from gaam_decoder.analysis.ablate import trainings, trainings_to_be
from gaam_decoder.config import TrainConfig
from gaam_decoder.planting.expected import expected_cache
from gaam_decoder.studying.asked_runs import check_strangers
from gaam_decoder.studying.place import Place
from gaam_decoder.studying.recipe import Study
from gaam_decoder.studying.running import (
    ablated,
    arguments,
    choice_of_layers,
    config_of,
    given,
    typed,
)
from gaam_decoder.studying.step import Step
from gaam_decoder.training.estimate import TrainEstimate
from gaam_decoder.training.estimate import estimate as estimate_training

NO_ESTIMATE = "no estimate"
LONGEST_REASON = 400
"""Characters of why there is none."""
Caches = dict[str | None, EmbeddingCache]
"""Of a study, by name: open, or what they are expected to be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one command would cost, in words; ``seconds`` where that can be known."""

    command: str
    words: str
    seconds: float | None


def estimate(study: Study, place: Place) -> Iterator[Cost]:
    """What every step would cost, as the commands themselves would say; nothing is written.

    A cache that is not there is taken to be what the step that makes it would make.

    Raises:
        ConfigError: the folder holds runs that no step asks for.
    """
    check_folder(place.out, option="--out")
    check_strangers(study, place)
    caches: Caches = {}
    for step in study.steps:
        try:
            command = typed(arguments(step, study, place))
        except NotFoundError:
            command = f"gaam ablate RUN {shlex.join(step.words())}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GaamWarning)  # whoever runs it is told
                cost = _cost(step, command, study, place, caches)
        except GaamError as error:
            words = f"{NO_ESTIMATE}: {_why(error, given(step, study, place))}"
            cost = Cost(command=command, words=words, seconds=None)
        yield cost


def _why(error: GaamError, options: Mapping[str, Any]) -> str:
    """Why there is no estimate, and what to do, in one line."""
    absent = isinstance(error, (HubError, NotFoundError))
    what, do = error.message, error.details.get("to do")
    if absent and f"'{options.get('dataset')}'" in error.message:
        what = f"the rows are not here ({what})"
        do = "--dataset FOLDER names the same rows on this machine"
    elif absent and f"'{options.get('encoder')}'" in error.message:
        what = f"the encoder is not here ({what})"
        do = "fetch it where there is a network, and let HF_HOME name the folder that keeps it"
    elif found := error.details.get("found"):
        what = f"{what} ({found})"
    return brief(" ".join("; ".join(filter(None, (what, do))).split()), LONGEST_REASON)


def _cost(
    step: Step,
    command: str,
    study: Study,
    place: Place,
    caches: Caches,
) -> Cost:
    """Of one step; what it makes is put among the caches."""
    if step.makes and (there := _complete(place.cache(step.makes))):
        caches[step.makes] = there
        words = "there is one, which the command compares with these options"
        return Cost(command=command, words=words, seconds=0.0)
    if step.reads and step.reads not in caches:
        words = f"{NO_ESTIMATE} before the cache '{step.reads}' is there"
        return Cost(command=command, words=words, seconds=None)
    cache = caches.get(step.reads)
    if step.command == "ablate":
        return _of_ablation(step, command, study, place, caches)
    config = config_of(step, study, place)
    if step.command == "train":
        unsure = cache is not None and not cache.fingerprint and config.runs.is_dir()
        found = [estimate_training(config, cache)]
        return _of_trainings(command, found, "up to " if unsure else "")
    if step.command == "plant":
        caches[step.makes] = expected_cache(config, cache)
        words = f"{NO_ESTIMATE}: it draws states and labels, and trains nothing"
        return Cost(command=command, words=words, seconds=None)
    extraction, plan, labels = estimate_and_plan(config)
    caches[step.makes] = ExpectedCache(config.out, plan, labels)
    return Cost(command=command, words="", seconds=extraction.seconds)


def _of_ablation(step: Step, command: str, study: Study, place: Place, caches: Caches) -> Cost:
    """Of its trainings: which layers they are of follows from the run, where that is there."""
    options = choice_of_layers(step)
    at_most = ""
    try:
        run = ablated(step, study, place)
        at_most = "up to "  # where its cache is not there nobody looks which layers these are
        configs = trainings(run, device=place.device or "auto", **options)
        return _of_trainings(command, [estimate_training(config) for config in configs])
    except NotFoundError:
        meant = _makes_run(step, study, place, caches)
    if meant is None:
        words = f"{NO_ESTIMATE} before its run is there"
        return Cost(command=command, words=words, seconds=None)
    config, cache = meant
    configs = trainings_to_be(config, cache, **options)
    found = [estimate_training(config, cache) for config in configs]
    return _of_trainings(command, found, at_most)


def _makes_run(
    step: Step, study: Study, place: Place, caches: Caches
) -> tuple[TrainConfig, EmbeddingCache] | None:
    """What will train the run that is to be ablated, and on what."""
    found = []
    for other in study.steps:
        if other.command == "train" and step.reads in (None, other.reads) and other.reads in caches:
            config: TrainConfig = config_of(other, study, place)
            if step.options["of"] in config.attn and None in config.layer_sets:
                config = replace(config, attn=(step.options["of"],))
                found.append((config, caches[other.reads]))
    return max(found, key=lambda one: len(one[0].seeds), default=None)


def _of_trainings(command: str, found: Sequence[TrainEstimate], at_most: str = "") -> Cost:
    number = sum(run.num_seeds for one in found for run in one.runs)
    what = f"{at_most}{number:,} trainings" if number else "is there"
    seconds = sum(one.seconds / one.workers for one in found)
    return Cost(command=command, words=what, seconds=seconds)


def _complete(path: Path) -> EmbeddingCache | None:
    """A cache of which every shard is there."""
    try:
        return open_cache(path)
    except (GaamError, OSError):
        return None


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
