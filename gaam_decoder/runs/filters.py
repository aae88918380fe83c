"""Which of many runs are meant, and what that leaves out."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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
    """
    fits = rules(runs, **asked)
    if not fits:
        return list(runs), before
    by = [(run, next((o for o, fit in fits.items() if not fit(run)), None)) for run in runs]
    chosen = [run for run, option in by if option is None]
    left = {run.attention for run in chosen}
    lost = {run.attention: option for run, option in by if option and run.attention not in left}
    words = [f"--{name} {text}" for name in ("attn", "head") for text in _several(asked.get(name))]
    for name in ("layers", "lr", "cache", "since"):
        if (value := asked.get(name)) is not None:
            text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value
            words.append(f"--where {name}={text}")
    before = before or Selection(chosen=len(runs))
    return chosen, Selection(
        asked=(*before.asked, *map(brief, words)),
        chosen=len(chosen),
        left_out=Counter(before.left_out) + Counter(option for _, option in by if option),
        lost={**before.lost, **lost},
    )


def rules(
    runs: Sequence[RunResult],
    *,
    attn: Texts = None,
    head: Texts = None,
    layers: Texts = None,
    lr: Texts = None,
    cache: str | Path | None = None,
    since: str | datetime | None = None,
) -> dict[str, Callable[[RunResult], bool]]:
    """By option what a run must be to be meant, each as ``load_runs`` has it.

    Raises:
        ConfigError: one that means nothing.
    """
    found: dict[str, Callable[[RunResult], bool]] = {}
    if attn:
        attentions = _specs(attn, {run.attention for run in runs}, "mechanism")
        found["--attn"] = lambda run: run.attention in attentions
    if head:
        heads = _specs(head, {run.head for run in runs}, "head")
        found["--head"] = lambda run: run.head in heads
    if layers:
        sets = _read("layers", parse_layer_sets, layers)
        found["--where layers"] = lambda run: (
            (parse_layers(some) if (some := run.recipe.get("layers")) else None) in sets
        )
    if lr:
        rates = _read("lr", _rates, lr)
        found["--where lr"] = lambda run: run.recipe.get("lr") in rates
    if cache is not None:
        digits = _fingerprint(str(cache), {run.cache["fingerprint"] for run in runs})
        found["--where cache"] = lambda run: run.cache["fingerprint"].startswith(digits)
    if since is not None:
        first = _read("since", _moment, since)
        found["--where since"] = lambda run: (made := run.published) is not None and made >= first
    return found


def _several(given: Texts) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _read(name: str, parse: Callable[[Any], Any], given: Any) -> Any:
    try:
        return parse(given)
    except (ValueError, OverflowError) as error:
        message, found = f"--where {name} is out of range", f"'{shortened(str(given))}'"
        raise ConfigError(message, expected=str(error), found=found) from error


def _rates(given: Any) -> tuple[float, ...]:
    rates = parse_rates(given)
    if not all(0 <= rate < math.inf for rate in rates):
        raise ValueError("learning rates from 0 on, such as 3e-4")
    return rates


def _moment(given: str | datetime) -> datetime:
    """A date, or one that long ago."""
    if isinstance(given, str) and (ago := re.fullmatch(r"(\d{1,6})([hdw])", given.strip())):
        hours = {"h": 1, "d": 24, "w": 168}[ago[2]]
        return datetime.now(UTC) - timedelta(hours=int(ago[1]) * hours)
    try:
        found = datetime.fromisoformat(given.strip()) if isinstance(given, str) else given
    except ValueError:
        expected = "a date (2026-11-01, 2026-11-01T09:30, in UTC) or a time span (12h, 3d, 2w)"
        raise ValueError(expected) from None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


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

    Args:
        spec: a mechanism, in its canonical form.
        there: mechanisms that runs have.
        option: where it was given.

    Raises:
        ConfigError: it is the name of several.
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
