"""Which of many runs are meant, and what that leaves out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaam_cache import plugins
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.messages import brief, shortened
from gaam_cache.store.digest import short_digest
from gaam_cache.store.plan import PLAN_FILE, read_plan
from gaam_decoder.number_lists import parse_layer_sets, parse_layers, parse_rates
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import KINDS, parse_spec

Texts = str | Sequence[str] | None
UNNAMED = "name"
"""What left out a run that lies beside those that were named one by one."""
OPTIONS = {"attn": "--attn", "head": "--head"} | {
    name: f"--where {name}" for name in ("layers", "lr", "cache")
}
"""Filters, and how the command line has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """That a report is of some runs only: what was asked for, and what that left out."""

    asked: tuple[str, ...] = ()
    """As the command line has it."""
    chosen: int
    """Runs."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Runs, by what left them out first."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Mechanisms of which no run is left, and what left out the last of them."""

    @property
    def total(self) -> int:
        """Runs that there are."""
        return self.chosen + sum(self.left_out.values())

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "asked": list(self.asked),
            "runs": self.chosen,
            "of_runs": self.total,
            "left_out": dict(self.left_out),
            "mechanisms_left_out": sorted(self.lost),
        }

    def left_out_in_words(self) -> str:
        """How many runs were left out by what; empty where none were."""
        by = {name: f"by {name}" for name in self.left_out} | {UNNAMED: "not named"}
        return ", ".join(f"{count:,} {by[name]}" for name, count in self.left_out.items())

    def in_words(self) -> str:
        """A line for people."""
        asked = f" ({' '.join(self.asked)})" if self.asked else ""
        left_out = f"; left out: {self.left_out_in_words()}" if self.left_out else ""
        return f"{self.chosen:,} of {self.total:,} runs{asked}{left_out}"


def select(
    runs: Sequence[RunResult], before: Selection | None = None, **asked: Any
) -> tuple[list[RunResult], Selection | None]:
    """The runs that are meant, and what was left out by which filter.

    A run that several filters leave out counts for the first of them.

    Args:
        runs: all there are.
        before: what was left out already.
        asked: by names of ``OPTIONS``, as ``load_runs`` has them; None is no filter.

    Raises:
        ConfigError: a filter that means nothing.
    """
    given = {k: asked[k] for k in OPTIONS if asked.get(k) not in (None, (), [])}
    if not given:
        return list(runs), before
    fits = {OPTIONS[name]: _rule(name, value, runs) for name, value in given.items()}
    by = [(run, next((o for o, fit in fits.items() if not fit(run)), None)) for run in runs]
    chosen = [run for run, option in by if option is None]
    left = {run.attention for run in chosen}
    lost = {run.attention: option for run, option in by if option and run.attention not in left}
    words = [f"{OPTIONS[k]} {text}" for k in ("attn", "head") for text in _several(given.get(k))]
    words += [
        f"{OPTIONS[name]}={','.join(map(str, _several(value)))}"
        for name, value in given.items()
        if name not in ("attn", "head")
    ]
    before = before or Selection(chosen=len(runs))
    return chosen, Selection(
        asked=(*before.asked, *map(brief, words)),
        chosen=len(chosen),
        left_out=Counter(before.left_out) + Counter(option for _, option in by if option),
        lost={**before.lost, **lost},
    )


def _rule(name: str, given: Any, runs: Sequence[RunResult]) -> Callable[[RunResult], bool]:
    """What a run must be to be meant."""
    if name == "attn":
        attentions = _specs(given, {run.attention for run in runs}, "mechanism")
        return lambda run: run.attention in attentions
    if name == "head":
        heads = _specs(given, {run.head for run in runs}, "head")
        return lambda run: run.head in heads
    if name == "cache":
        digits = _fingerprint(str(given), {run.cache["fingerprint"] for run in runs})
        return lambda run: run.cache["fingerprint"].startswith(digits)
    try:
        values = parse_rates(given) if name == "lr" else parse_layer_sets(given)
    except ValueError as error:
        message, found = f"--where {name} is out of range", f"'{shortened(str(given))}'"
        raise ConfigError(message, expected=str(error), found=found) from error
    if name == "lr":
        return lambda run: run.recipe.get("lr") in values
    return lambda run: (
        (parse_layers(some) if (some := run.recipe.get("layers")) else None) in values
    )


def _several(given: Any) -> tuple[Any, ...]:
    given = () if given is None else given
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _specs(given: Texts, there: set[str], kind: str) -> set[str]:
    """Of the specs that runs have, those that are meant."""
    package, option = KINDS[kind]
    meant = set()
    for text in map(str.strip, _several(given)):
        name, colon, _ = text.partition(":")
        forms = {spec for spec in there if spec.partition(":")[0] == name}
        if not colon and (forms or name in plugins.names(package)):
            meant |= forms
        else:  # of a plug-in that is not installed here, too
            meant.add(text if text in forms else str(parse_spec(text, kind, option)))
    return meant


def one_form(spec: str, there: set[str], option: str) -> str:
    """The spec that is meant, of those that runs have: heads may have been chosen by the encoder.

    Raises:
        ConfigError: the mechanism ``spec``, which ``option`` names, is there in several forms.
    """
    forms = sorted(one for one in there if one.partition(":")[0] == spec)
    if spec in there or not forms:
        return spec
    if len(forms) > 1:
        message = f"{option} {spec} may be any of several"
        raise ConfigError(message, expected=f"one of: {', '.join(forms)}")
    return forms[0]


def _fingerprint(text: str, there: set[str]) -> str:
    """The fingerprint of the cache in a folder, or the digits with which the one meant begins."""
    with suppress(OSError, ValueError):  # a name that no file can have
        if (folder := Path(text).expanduser()).joinpath(PLAN_FILE).is_file():
            return read_plan(folder).fingerprint
    digits = text.lower()
    fits = [one for one in there if one.startswith(digits)]
    if not re.fullmatch("[0-9a-f]{4,64}", digits) or len(fits) > 1:
        raise NotFoundError(
            f"--where cache names no cache, or several: '{shortened(text)}'",
            expected="the folder of a cache, or 4 or more digits that one fingerprint begins with",
            hint=f"the runs are of: {', '.join(sorted(short_digest(one) for one in there)[:9])}",
        )
    return digits
