"""Which seeds of which runs a config asks for, whatever is there of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from gaam_cache import devices
from gaam_cache.cache import open_cache
from gaam_cache.errors import GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import Choice, choose
from gaam_decoder.training.finals import apart, chosen_finals
from gaam_decoder.training.items import Item, families_of, plan_items, seeds_of


class Wanted(NamedTuple):
    """One decoder under one recipe, and its seeds."""

    item: Item
    seeds: frozenset[int]
    needed: bool
    """False of a probe that is too expensive here to be fitted without being asked for."""
    tunings: frozenset[tuple[int, ...]]
    """Seeds that choose between it and others, of every config that asks for it; empty: none do."""

    def also(self, other: Wanted | None) -> Wanted:
        """What both ask for, of the same decoder and recipe."""
        if other is None:
            return self
        return Wanted(
            self.item,
            self.seeds | other.seeds,
            self.needed or other.needed,
            self.tunings | other.tunings,
        )


def wanted(config: TrainConfig, *, at_most: bool = False) -> dict[str, Wanted]:
    """What ``train`` of a config leaves behind, by key of the run.

    Where seeds choose between rates, what is chosen follows from the runs that are there: as long
    as one of these is missing, only the seeds that choose are wanted.

    Args:
        config: as ``train`` takes it.
        at_most: all seeds of every candidate, whichever will be chosen.

    Raises:
        ConfigError: an option does not fit the cache.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
    """
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GaamWarning)  # the training has said it
        items = plan_items(config, cache, device)
        every = plan_items(config, cache, device, every_probe=True)
    cheap = {item.key for item in items}
    found: dict[str, Wanted] = {}
    tunings = frozenset([tuple(sorted(config.tune_seeds or ()))])

    def want(several: Sequence[Item], seeds: Sequence[int]) -> None:
        for item in several:
            one = Wanted(item, frozenset(seeds_of(item, seeds)), item.key in cheap, tunings)
            found[item.key] = one.also(found.get(item.key))

    if config.tune_seeds is None:
        want(every, config.seeds)
        return found
    if at_most:
        want(every, (*config.tune_seeds, *config.seeds))
        return found
    tried = tried_items(every, config)
    want(tried, config.tune_seeds)
    tuned = [run for item in tried for run in runs_of_key(config.runs, item.key)]
    tuned = [run for run in tuned if set(run.seeds) & set(config.tune_seeds)]
    there = {(run.key, seed) for run in tuned for seed in run.seeds}
    if all((item.key, seed) in there for item in tried for seed in config.tune_seeds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GaamWarning)
            chosen = choose(tuned, config.tune_seeds)
            want(reporting_items(every, config, tuned, chosen), config.seeds)
    return found


def tried_items(items: Sequence[Item], config: TrainConfig) -> list[Item]:
    """Candidates, which seeds of their own choose between."""
    return [item for family in families_of(apart(items, config)[0]) for item in family]


def reporting_items(
    items: Sequence[Item], config: TrainConfig, tuned: Sequence[RunResult], chosen: Choice
) -> list[Item]:
    """What is trained when the candidates are there: those that were chosen, and what had none.

    Args:
        items: everything that the config asks for.
        config: of the training, with ``tune_seeds``.
        tuned: runs of the candidates.
        chosen: between them.
    """
    evaluated, finals = apart(items, config)
    tried = {item.key for item in tried_items(items, config)}
    left = [item for item in evaluated if item.key in chosen.tunings or item.key not in tried]
    assert config.tune_seeds is not None
    return left + chosen_finals(finals, evaluated, tuned, config.tune_seeds)
