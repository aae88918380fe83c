"""All arrays that files hold: how one is asked for, and what is said where that is not clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gaam_cache.errors import ConfigError
from gaam_cache.importing.containers._base import STRINGS, Array, Container
from gaam_cache.importing.names import UNDERSTOOD, numbers_of
from gaam_cache.importing.storing import READABLE
from gaam_cache.messages import excerpt, shortened

MOST_SHOWN = 40
"""Arrays that a message lists."""


class Offer:
    """All arrays of all files, and how they are asked for."""

    def __init__(self, containers: Sequence[Container]) -> None:
        self.containers = containers
        self.pairs = [(one, array) for one in containers for array in one.arrays]

    def find(self, asked: str, option: str) -> list[Array]:
        """The array of that name, or those of a pattern, in the order of their numbers."""
        pairs, name = self.pairs, asked
        if not any(array.name == name for _, array in pairs):
            file, colon, rest = asked.rpartition(":")
            there = [pair for pair in pairs if file in (str(pair[0].path), pair[0].path.name)]
            if colon and there:
                pairs, name = there, rest
        found = [array for _, array in pairs if array.name == name]
        if not found and name.count("*") == 1:
            return self._layers(asked, numbers_of(name, [array.name for _, array in pairs]), pairs)
        if len(found) != 1:
            what = "there is no array" if not found else "several files have an array"
            raise self.unclear(
                f"{what} {excerpt(asked)}",
                expected=f"{option} SPLIT=NAME, or SPLIT=FILE:NAME",
                hint="name one of these",
            )
        return found

    def _layers(
        self, asked: str, numbers: dict[int, list[str]], pairs: list[tuple[Container, Array]]
    ) -> list[Array]:
        if not numbers:
            raise self.unclear(
                f"no array is called {excerpt(asked)}",
                expected="a number where '*' stands",
                hint="name one of these",
            )
        self.check_numbers(numbers, asked)
        by_name = {array.name: array for _, array in pairs}
        return [by_name[names[0]] for names in numbers.values()]

    def check_numbers(self, numbers: Mapping[int, Sequence[object]], what: str) -> None:
        """Refuse layers that are missing or there twice."""
        listed = list(numbers)
        gaps = sorted(set(range(listed[0], listed[-1])) - set(listed))
        if twice := [number for number, there in numbers.items() if len(there) > 1]:
            raise self.unclear(
                f"layer {twice[0]} of {excerpt(what)} is there twice", hint="--array names one"
            )
        if gaps:
            raise self.unclear(
                f"layer {gaps[0]} of {excerpt(what)} is missing",
                expected=f"all from {listed[0]} to {listed[-1]}",
                hint="give every layer that is to be taken its own --array SPLIT=NAME",
            )

    def unclear(
        self, message: str, *, expected: str | None = None, hint: str | None = None
    ) -> ConfigError:
        """The one refusal of what is not clear: it lists what there is."""
        lines = [f"{one.path.name}: {array}" for one, array in self.pairs[:MOST_SHOWN]]
        if len(self.pairs) > MOST_SHOWN:
            lines.append(f"and {len(self.pairs) - MOST_SHOWN:,} more")
        names = {array.name for _, array in self.pairs}
        if {"embeddings", "label", "row", "num_tokens"} <= names:
            hint = (
                "this is a shard of a gaam cache: use the cache as it is (gaam train --cache), or "
                "name its arrays (--array train=embeddings --labels train=label)"
            )
        return ConfigError(
            message,
            expected=expected or UNDERSTOOD,
            found="\n".join(lines) or "no arrays at all",
            where=", ".join(shortened(str(one.path)) for one in self.containers[:4]),
            hint=hint or self._remedy(),
        )

    def _remedy(self) -> str:
        states = [a.name for _, a in self.pairs if a.dtype in READABLE and len(a.shape) in (2, 3)]
        labels = [
            a.name
            for _, a in self.pairs
            if len(a.shape) == 1 and (a.dtype == STRINGS or "int" in a.dtype)
        ]
        one = (states or ["NAME"])[0], (labels or ["NAME"])[0]
        return f"say which is which: --array 'train={one[0]}' --labels 'train={one[1]}', and so on"
