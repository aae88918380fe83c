"""What of a recipe has to fit together, found before anything is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaam_cache.messages import did_you_mean
from gaam_cache.settings import resolve
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import parse_seeds, spell_numbers
from gaam_decoder.specs import Spec, parse_attention, parse_head
from gaam_decoder.studying.place import MACHINE
from gaam_decoder.studying.tables import wrong

if TYPE_CHECKING:
    from gaam_decoder.studying.recipe import Asked
    from gaam_decoder.studying.step import Step

RATES = ("lr", "weight_decay")
NOT_OF_A_ROW = {
    *RATES,
    *MACHINE,
    "seeds",
    "tune_seeds",
    "probe",
    "skip_impossible",
    "cache",
    "runs",
}
"""Of a training what makes no other row of a table."""
PROBE = "lbfgs"
"""The head that ``probe`` adds, to ``none``."""


def check_together(steps: Sequence[Step], reports: Sequence[Asked], path: Path) -> None:
    """Check what several parts of a recipe say of one another.

    Args:
        steps: commands of the study.
        reports: of it.
        path: of the recipe.

    Raises:
        ConfigError: nothing is trained; two trainings are of the same row and chosen by other
            seeds or rates; or what is ablated or reported is not trained.
    """
    trains = [step for step in steps if step.command == "train"]
    if not trains:
        raise wrong(path, "the study", "a [[train]] at least", "none: there is nothing to report")
    configs = [
        resolve(TrainConfig, "train", {"probe": True, **step.options})
        for step in trains  # the command adds the probe unless it is told not to
    ]
    for (one, a), (other, b) in combinations(zip(trains, configs, strict=True), 2):
        if one.reads == other.reads:
            _check_same_row(a, b, str(one.reads), path)
    for step in steps:
        if step.command == "ablate":
            there = [c for t, c in zip(trains, configs, strict=True) if _is_of(t, step.reads)]
            _check_trained("'of' in [[ablate]]", [step.options["of"]], there, path)
    for asked in reports:
        if asked.studies:
            continue  # whose rows stand there too
        there = [c for t, c in zip(trains, configs, strict=True) if _is_of(t, asked.cache)]
        who = f"of report '{asked.name}'"
        baseline = asked.options.get("baseline")
        _check_trained(f"'baseline' {who}", [baseline] if baseline else [], there, path)
        _check_trained(f"'attn' {who}", asked.options.get("attn", ()), there, path)
        heads = {head for config in there for head in _several("head", config)}
        heads |= {PROBE for config in there if config.probe}
        for head in asked.options.get("head", ()):
            if parse_head(head).name not in {one.partition(":")[0] for one in heads}:
                raise wrong(path, f"'head' {who}", _one_of(heads), head, did_you_mean(head, heads))
        _check_tuned(who, asked.options.get("tune_seeds"), there, path)


def _is_of(step: Step, cache: str | None) -> bool:
    return cache is None or step.reads == cache


def _check_same_row(one: TrainConfig, other: TrainConfig, cache: str, path: Path) -> None:
    if one.tune_seeds is None and other.tune_seeds is None:
        return  # seeds and rates of both stand side by side
    chosen_by = ("seeds", "tune_seeds", "lrs", "weight_decays")
    if all(getattr(one, name) == getattr(other, name) for name in chosen_by):
        return
    for field in dataclasses.fields(TrainConfig):
        if field.name not in NOT_OF_A_ROW and not _shared(field.name, one, other):
            return
    both = sorted(_shared("attn", one, other))
    raise wrong(
        path,
        f"two [[train]] of cache '{cache}' with the same rows of {', '.join(both)}",
        "the same seeds, tune-seeds and rates in both: of one row the same seeds choose between "
        "all rates",
        " and ".join(_choice(config) for config in (one, other)),
        "one [[train]] for each mechanism, or seeds and rates alike",
    )


def _shared(field: str, one: TrainConfig, other: TrainConfig) -> set[str]:
    """Values of a setting that both train with."""
    return _several(field, one) & _several(field, other)


def _several(field: str, config: TrainConfig) -> set[str]:
    if field == "layers":
        return set(map(str, config.layers))
    value = getattr(config, field)
    read = {"attn": parse_attention, "head": parse_head}.get(field, str)
    return {str(read(one)) for one in (value if isinstance(value, tuple) else (value,))}


def _choice(config: TrainConfig) -> str:
    tune = f"tune-seeds {spell_numbers(config.tune_seeds)}, " if config.tune_seeds else ""
    return f"{tune}seeds {spell_numbers(config.seeds)}, lr {', '.join(map(str, config.lr))}"


def _check_trained(
    what: str, asked: Iterable[str], there: Sequence[TrainConfig], path: Path
) -> None:
    trained = {str(spec): spec for config in there for spec in _specs(config)}
    for text in asked:
        spec = parse_attention(text, what)
        if not any(_may_be(spec, one) for one in trained.values()):
            raise wrong(path, what, _one_of(trained), text, did_you_mean(text, trained))


def _specs(config: TrainConfig) -> list[Spec]:
    probe = ["none"] if config.probe else []
    return [parse_attention(text) for text in (*_several("attn", config), *probe)]


def _may_be(asked: Spec, trained: Spec) -> bool:
    """Whether they agree in every option that both say: a default depends on the cache."""
    said, there = dict(asked.options), dict(trained.options)
    both = said.keys() & there.keys()
    return asked.name == trained.name and all(said[name] == there[name] for name in both)


def _check_tuned(who: str, asked: Any, there: Sequence[TrainConfig], path: Path) -> None:
    if asked is None:
        return
    try:
        seeds = parse_seeds(asked)
    except ValueError as error:
        raise wrong(path, f"'tune-seeds' {who}", str(error), asked) from error
    for config in there:
        if config.tune_seeds and set(config.tune_seeds) != set(seeds):
            trained = spell_numbers(config.tune_seeds)
            raise wrong(path, f"'tune-seeds' {who}", f"{trained}, as [[train]] has them", asked)


def _one_of(names: Iterable[str]) -> str:
    return f"what [[train]] has: {', '.join(sorted(names))}"
