"""Temperatures of the seeds that predict, and what is said of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.result import RunResult


def temperatures_of(run: RunResult, seeds: Sequence[int]) -> tuple[float, ...]:
    """One for every seed, above 0, fitted on the rows that chose its epoch.

    Args:
        run: that has them.
        seeds: of it, that finished.

    Raises:
        ConfigError: no rows chose, the run kept no answers of them, or they are not finite.
        CacheError: the run is damaged.

    Warns:
        GaamWarning: no temperature has the smallest loss of a seed.
    """
    held = run.validation
    if held is None:
        again = "train again with --select val"
        if run.shuffled:
            raise no_rows(run.path, "a run on shuffled labels", again)
        if run.select != "val":
            raise no_rows(run.path, f"a run of --select {run.select}", again)
        raise no_rows(run.path, "a run of an earlier version", "train again")
    found = {seed: held.temperature(run.seeds.index(seed)) for seed in seeds}
    if lost := [seed for seed, one in found.items() if one is None]:
        what = f"seeds {spell_numbers(lost)}, whose answers to these rows are not finite"
        raise no_rows(run.path, what, "name another seed with --seed")
    ours = [one for one in found.values() if one is not None]
    if lacking := [seed for seed, one in zip(seeds, ours, strict=True) if not one.fitted]:
        warnings.warn(
            f"no temperature was fitted for seeds {spell_numbers(lacking)} of '{run.path.name}', "
            "none has the smallest loss: where the rows that chose are all right theirs is 1, and "
            "where the answers are no better than none all classes become equally likely",
            GaamWarning,
            stacklevel=3,
        )
    return tuple(one.value for one in ours)


def no_rows(where: Path, found: str, instead: str) -> ConfigError:
    """What is said where there is nothing to fit a temperature on."""
    return ConfigError(
        "there is nothing that a temperature is fitted on",
        expected="answers to the rows that chose the epoch, which runs of --select val keep",
        found=found,
        where=str(where.absolute()),
        hint=f"leave out --temperature, or {instead}",
    )


def averaged(num_seeds: int, temperatures: Sequence[float]) -> str:
    """Whose probabilities they are: ``the average of 10 seeds, each at its temperature (...)``."""
    text = "one seed" if num_seeds == 1 else f"the average of {num_seeds} seeds"
    if not temperatures:
        return text
    low, high = min(temperatures), max(temperatures)
    if num_seeds == 1:
        return f"{text}, logits divided by its temperature, {low:.3g}"
    return f"{text}, logits of each divided by its temperature, {low:.3g} to {high:.3g}"
