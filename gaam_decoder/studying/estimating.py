"""What is missing of a study, and roughly what it takes, as far as that is known before it runs."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import gaam_cache
from gaam_cache.errors import GaamError, GaamWarning, NotFoundError
from gaam_cache.extraction.estimate import in_bytes
from gaam_cache.messages import brief, duration
from gaam_cache.store.files import check_folder
from gaam_decoder.analysis.ablate import trainings
from gaam_decoder.studying.asked_runs import check_strangers
from gaam_decoder.studying.place import Place
from gaam_decoder.studying.recipe import Study
from gaam_decoder.studying.running import ablated, arguments, choice_of_layers, config_of, typed
from gaam_decoder.studying.step import Step
from gaam_decoder.training.estimate import estimate as estimate_training

LONGEST_REASON = 400
"""Characters of why there is no estimate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """A command that is missing, and what it takes; ``seconds`` where that can be known."""

    command: str
    words: str
    seconds: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyEstimate:
    """What ``gaam study --dry-run`` says."""

    missing: tuple[Cost, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"seconds": self.seconds, "commands": [asdict(cost) for cost in self.missing]}

    @property
    def seconds(self) -> float:
        """Of all of which that is known."""
        return sum(cost.seconds or 0.0 for cost in self.missing)

    def in_words(self) -> str:
        """A line for all, and two for every command that is missing."""
        if not self.missing:
            return "nothing is missing"
        unknown = sum(cost.seconds is None for cost in self.missing)
        line = f"# roughly {duration(max(1, self.seconds))}" if self.seconds else "# time unknown"
        line += f", {len(self.missing)} commands are missing"
        line += f"; {unknown} of them have no estimate yet" if unknown else ""
        return "\n".join([line, *(f"{cost.command}\n  # {cost.words}" for cost in self.missing)])


def estimate(study: Study, place: Place) -> StudyEstimate:
    """The commands that are missing, and what each takes; nothing is written.

    Raises:
        ConfigError: the folder holds runs that no step asks for.
    """
    check_folder(place.out, option="--out")
    check_strangers(study, place)
    costs = []
    for step in study.steps:
        try:
            command = typed(arguments(step, study, place))
        except NotFoundError:
            command = f"gaam ablate RUN {shlex.join(step.words())}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GaamWarning)  # whoever runs it is told
                found = _cost(step, study, place)
        except GaamError as error:
            said = (error.message, error.details.get("found"), error.details.get("to do"))
            why = " ".join("; ".join(filter(None, said)).split())
            found = f"no estimate: {brief(why, LONGEST_REASON)}", None
        if found is not None:
            costs.append(Cost(command=command, words=found[0], seconds=found[1]))
    return StudyEstimate(missing=tuple(costs))


def _cost(step: Step, study: Study, place: Place) -> tuple[str, float | None] | None:
    """Of one step in words and seconds; None where nothing of it is missing."""
    if step.makes:
        if _is_there(place, step.makes):
            return None
        if step.command == "plant":
            return "draws states and labels", None
        extraction = gaam_cache.estimate(config_of(step, study, place))
        words = f"about {duration(max(1, extraction.seconds))}, {in_bytes(extraction.bytes)}"
        return words, extraction.seconds
    if step.reads and not _is_there(place, step.reads):
        return f"when the cache '{step.reads}' is there", None
    if step.command == "train":
        configs = [config_of(step, study, place)]
    else:
        try:
            run = ablated(step, study, place)
        except NotFoundError:
            return "when its run is there", None
        configs = trainings(run, device=place.device or "auto", **choice_of_layers(step))
    found = [one for config in configs if (one := estimate_training(config)).trainings]
    if not found:
        return None
    return "; ".join(one.total() for one in found), sum(one.seconds for one in found)


def _is_there(place: Place, name: str) -> bool:
    try:
        gaam_cache.open_cache(place.cache(name))
    except (GaamError, OSError):
        return False
    return True
