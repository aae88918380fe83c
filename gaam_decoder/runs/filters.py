"""Which of many runs are meant, and what that leaves out.

By mechanism, head, layers, learning rate, cache and date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gaam_cache import plugins
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.messages import brief, shortened
from gaam_cache.store.digest import short_digest
from gaam_cache.store.plan import PLAN_FILE, read_plan
from gaam_decoder.number_lists import Layers, parse_layers, spell_layers
from gaam_decoder.runs.filter_values import Texts, layer_sets, moment, rates
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_checks import CREATED_FORMAT
from gaam_decoder.runs.run_reader import RUN_FILE
from gaam_decoder.runs.selection import Selection
from gaam_decoder.specs import KINDS, parse_spec

FEWEST_DIGITS = 4
"""Of a fingerprint: fewer name too many by chance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """What runs must be to be meant; empty: all are."""

    attn: tuple[str, ...] = ()
    """Names, each of which means every form of the mechanism, or ``name:key=value``, which means
    that form alone."""
    head: tuple[str, ...] = ()
    """The same of heads."""
    layers: tuple[Layers, ...] = ()
    """Sets of layers; None is all layers."""
    lr: tuple[float, ...] = ()
    """Learning rates."""
    cache: str | None = None
    """Folder of a cache, or the beginning of its fingerprint."""
    since: datetime | None = None
    """When the first of them was published."""

    @classmethod
    def of(
        cls,
        *,
        attn: Texts = None,
        head: Texts = None,
        layers: Texts = None,
        lr: Texts = None,
        cache: str | Path | None = None,
        since: str | datetime | None = None,
        now: datetime | None = None,
    ) -> Filters:
        """Filters as people write them.

        Args:
            attn: ``gaam`` is every form of it, ``gaam:heads=1`` that one, ``gaam:`` the one without
                options.
            head: the same of heads.
            layers: each one set, as ``gaam train --layers`` has them: ``3``, ``1-8,12``, ``all``.
            lr: rates, of which those with the same value are meant: ``3e-4``, ``1e-4,3e-4``.
            cache: folder of a cache, or 4 or more digits that its fingerprint begins with.
            since: a date or time of ISO 8601, UTC where it does not say, or how long ago: ``12h``,
                ``3d``, ``2w``.
            now: to count back from; default: the clock.

        Raises:
            ConfigError: a date, a time span, layers or a rate that are none.
        """
        return cls(
            attn=(attn,) if isinstance(attn, str) else tuple(attn or ()),
            head=(head,) if isinstance(head, str) else tuple(head or ()),
            layers=layer_sets(layers),
            lr=rates(lr),
            cache=None if cache is None else str(cache),
            since=None if since is None else moment(since, now or datetime.now(UTC)),
        )

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        named = self.attn or self.head or self.layers or self.lr
        return bool(named or self.cache is not None or self.since is not None)

    def choose(self, runs: Sequence[RunResult]) -> tuple[list[RunResult], Selection]:
        """The runs that are meant, and what was left out by which filter.

        A run that several filters leave out counts for the first of them.

        Raises:
            ConfigError: an unknown mechanism or head, or digits with which several fingerprints
                begin.
            NotFoundError: neither a cache nor digits of a fingerprint.
            CacheError: the cache that is named is damaged.
        """
        chosen: list[RunResult] = []
        left_out: dict[str, list[RunResult]] = {}
        rules = self._rules(runs)
        for run in runs:
            for option, fits in rules.items():
                if not fits(run):
                    left_out.setdefault(option, []).append(run)
                    break
            else:
                chosen.append(run)
        attentions = {run.attention for run in chosen}
        return chosen, Selection(
            asked=self.in_words(),
            chosen=len(chosen),
            left_out={option: len(of_it) for option, of_it in left_out.items()},
            lost={
                run.attention: option
                for option, of_it in left_out.items()
                for run in of_it
                if run.attention not in attentions
            },
            dated_by_file=sum(run.created is None for run in runs) if self.since else 0,
        )

    def in_words(self) -> tuple[str, ...]:
        """As the command line has them."""
        found = [f"--attn {text}" for text in self.attn] + [f"--head {text}" for text in self.head]
        found += [f"--where layers={spell_layers(of)}" for of in self.layers]
        found += [f"--where lr={value:g}" for value in self.lr]
        found += [] if self.cache is None else [f"--where cache={self.cache}"]
        found += [] if self.since is None else [f"--where since={self.since:%Y-%m-%dT%H:%M:%SZ}"]
        return tuple(brief(text) for text in found)

    def _rules(self, runs: Sequence[RunResult]) -> dict[str, Callable[[RunResult], bool]]:
        """By option what a run must be."""
        rules: dict[str, Callable[[RunResult], bool]] = {}
        if self.attn:
            attentions = _specs(self.attn, {run.attention for run in runs}, "mechanism")
            rules["--attn"] = lambda run: run.attention in attentions
        if self.head:
            heads = _specs(self.head, {run.head for run in runs}, "head")
            rules["--head"] = lambda run: run.head in heads
        if self.layers:
            rules["--where layers"] = lambda run: _of_layers(run) in self.layers
        if self.lr:
            rules["--where lr"] = lambda run: run.recipe.get("lr") in self.lr
        if self.cache is not None:
            digits = _fingerprint(self.cache, {run.cache["fingerprint"] for run in runs})
            rules["--where cache"] = lambda run: run.cache["fingerprint"].startswith(digits)
        if (since := self.since) is not None:
            rules["--where since"] = lambda run: (
                (made := published(run)) is not None and made >= since
            )
        return rules


def published(run: RunResult) -> datetime | None:
    """When a run was published; of earlier versions, when its file was changed last.

    None where there is no file.
    """
    if run.created is not None:
        return datetime.strptime(run.created, CREATED_FORMAT).replace(tzinfo=UTC)
    try:
        changed = (run.path / RUN_FILE).stat().st_mtime
        return datetime.fromtimestamp(int(changed), UTC)
    except (OSError, OverflowError, ValueError):
        return None


def _specs(texts: Sequence[str], there: set[str], kind: str) -> set[str]:
    """Of the specs that runs have, those that are meant."""
    package, option = KINDS[kind]
    known = {*plugins.names(package)}
    meant = set()
    for text in texts:
        name, colon, _ = text.strip().partition(":")
        forms = {spec for spec in there if spec.partition(":")[0] == name}
        if not colon and (name in known or forms):
            meant |= forms
        elif text.strip() in forms:  # of a plug-in that is not installed here, too
            meant.add(text.strip())
        else:
            meant.add(str(parse_spec(text, kind, option)))
    return meant


def _of_layers(run: RunResult) -> Layers:
    some = run.recipe.get("layers")
    return parse_layers(some) if some else None


def _fingerprint(text: str, there: set[str]) -> str:
    """The fingerprint that is meant, or the digits with which it begins."""
    folder = Path(text).expanduser()
    with suppress(OSError, ValueError):  # a name that no file can have
        if (folder / PLAN_FILE).is_file():
            return read_plan(folder).fingerprint
    digits = text.lower()
    if not re.fullmatch(f"[0-9a-f]{{{FEWEST_DIGITS},64}}", digits):
        raise NotFoundError(
            f"--where cache names no cache: '{shortened(text)}'",
            expected=f"the folder of a cache, or {FEWEST_DIGITS} or more digits of a fingerprint",
            found="no cache there",
            where=brief(str(folder.absolute())),
            hint=f"the runs are of: {', '.join(sorted(short_digest(one) for one in there)[:9])}",
        )
    fits = sorted(short_digest(one) for one in there if one.startswith(digits))
    if len(fits) > 1:
        raise ConfigError(
            f"several fingerprints begin with '{text}'",
            expected="digits that only one begins with",
            found=", ".join(fits),
        )
    return digits
