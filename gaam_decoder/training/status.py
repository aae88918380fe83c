"""The state of every decoder of a training, for a table that changes meanwhile."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gaam_cache.common.messages import counted
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import (
    TUNED_SETTINGS,
    VAL_FOLDS,
    choose_candidates,
)
from gaam_decoder.specs import decoder_title
from gaam_decoder.training.experiments import Experiment


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderStatus:
    """How far the training of a decoder is.

    The candidates, folds and repeats of a decoder have one status together.
    """

    decoder: str
    """Its title, with the settings in which the decoders of the training differ."""
    state: str = "waiting"
    """Such as ``tuning 3 of 4``, ``seeds 0-9, epoch 2 of 20`` or ``done``."""
    learning_rate: str = ""
    """Chosen by tuning, or requested; empty while it is unknown, and for a fit."""
    validation: str = ""
    """Mean validation score at the selected epochs; of the chosen candidate."""
    seconds: float = 0.0
    """Of all seeds of the published runs, tuning seeds too."""


class StatusBoard:
    """Follows a training, and calls ``on_status`` with every status that changes.

    Args:
        experiments: of the training, with all candidates.
        tuning_seeds: of the training; None where it has none.
        on_status: called with each status; None: nobody looks.
    """

    def __init__(
        self,
        experiments: Sequence[Experiment],
        tuning_seeds: tuple[int, ...] | None,
        on_status: Callable[[DecoderStatus], None] | None,
    ) -> None:
        self._tuning_seeds = tuning_seeds
        self._on_status = on_status
        self._differing = differing_settings(
            [experiment.recipe.to_dict() for experiment in experiments]
        )
        # by decoder; of the current phase: keys of its experiments, and unfinished ones
        self._statuses: dict[str, DecoderStatus] = {}
        self._keys: dict[str, list[str]] = {}
        self._unfinished: dict[str, set[str]] = {}
        self._runs: dict[str, dict[Path, RunResult]] = {}
        self._is_tuning = False
        for experiment in experiments:
            self._update(self._decoder(experiment))

    def begin(self, experiments: Sequence[Experiment], *, is_tuning: bool) -> None:
        """Begin a phase: tuning seeds train candidates, or others the chosen ones."""
        self._is_tuning = is_tuning
        self._keys = {}
        for experiment in experiments:
            self._keys.setdefault(self._decoder(experiment), []).append(experiment.key)
        self._unfinished = {decoder: set(keys) for decoder, keys in self._keys.items()}

    def work(self, experiment: Experiment, text: str) -> None:
        """Say what is going on in an experiment of the phase."""
        # it is said every epoch, and a title takes a copy of the recipe
        if self._on_status is None:
            return
        decoder = self._decoder(experiment)
        keys = self._keys[decoder]
        number = f"{keys.index(experiment.key) + 1} of {len(keys)}"
        if self._is_tuning:
            text = f"tuning {number}"
        elif len(keys) > 1:
            unit = "fold " if experiment.recipe.fold else ""
            text = f"{unit}{number}: {text}"
        self._update(decoder, state=text)

    def finish(self, experiment: Experiment, runs: Sequence[RunResult]) -> None:
        """Take the published runs of an experiment, all of whose seeds are trained."""
        if self._on_status is None:
            return
        decoder = self._decoder(experiment)
        runs_by_path = self._runs.setdefault(decoder, {})
        runs_by_path |= {run.path: run for run in runs}
        self._unfinished[decoder].discard(experiment.key)
        all_runs = [*runs_by_path.values()]
        seconds = math.fsum(math.fsum(run.seconds.values()) for run in all_runs)
        self._update(decoder, seconds=seconds)
        if not self._unfinished[decoder]:
            self._end_phase(decoder, all_runs)

    def _end_phase(self, decoder: str, runs: Sequence[RunResult]) -> None:
        """Show what validation chose, after the last experiment of a decoder."""
        learning_rate, validation = _results_in_words(runs, self._tuning_seeds)
        state = "tuned" if self._is_tuning else "done"
        num_failed = sum(len(run.failed) for run in runs if not run.tuning_only)
        if num_failed and not self._is_tuning:
            state += f", {counted(num_failed, 'seed')} FAILED"
        self._update(
            decoder, state=state, learning_rate=learning_rate, validation=validation
        )

    def _decoder(self, experiment: Experiment) -> str:
        """The title of the decoder that an experiment trains."""
        recipe = experiment.recipe
        settings = {
            name: value
            for name, value in recipe.to_dict().items()
            if name in self._differing
        }
        return decoder_title(
            recipe.attention, recipe.head, settings, final=recipe.final
        )

    def _update(self, decoder: str, **changes: Any) -> None:
        """Change the status of a decoder, and show it."""
        old = self._statuses.get(decoder, DecoderStatus(decoder=decoder))
        self._statuses[decoder] = replace(old, **changes)
        if self._on_status is not None:
            self._on_status(self._statuses[decoder])


def differing_settings(recipes: Sequence[Mapping[str, Any]]) -> set[str]:
    """Names of the settings that tell decoders apart, in recipes as JSON values.

    What tuning chooses, and the folds and repeats of a decoder, tell none apart.
    """
    names = {name for settings in recipes for name in settings}
    names -= {*TUNED_SETTINGS, VAL_FOLDS, "fold", "split_seed"}
    return {
        name
        for name in names
        if len({str(settings.get(name)) for settings in recipes}) > 1
    }


def _results_in_words(
    runs: Sequence[RunResult], tuning_seeds: Collection[int] | None
) -> tuple[str, str]:
    """The learning rate and the validation score of a decoder, as texts.

    Folds may choose several rates; the score is "" without validation rows.

    Args:
        runs: of the decoder, with all its candidates and folds.
        tuning_seeds: that choose among the candidates, if the training has any.
    """
    choice = choose_candidates(runs, tuning_seeds)
    tunings = [*choice.tunings.values()]
    if tunings:
        rates = {tuning.chosen["lr"] for tuning in tunings}
        scores = [tuning.accuracy for tuning in tunings]
    else:
        # not tuned: a single learning rate, or none of a head that is fitted at once
        rates = {run.recipe.lr for run in runs if not run.fit}
        scores = [score for run in runs for score in run.validation_score.tolist()]
        scores = [score for score in scores if not math.isnan(score)]
    validation = ""
    if scores:
        mean = math.fsum(scores) / len(scores)
        validation = runs[0].task_definition.with_title(mean)
    return ", ".join(f"{rate:g}" for rate in sorted(rates)), validation
