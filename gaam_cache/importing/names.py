"""What arrays are called, and what that says of them: nothing is guessed from shapes.

``train/embeddings``, ``train_embeddings``, ``X_train`` or ``embeddings`` in a file ``train.npz``;
``layer_0``, ``hidden_states/0`` and so on in any of these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from gaam_cache.config import NAME_PATTERN

STATES, LABELS, NUM_TOKENS, CLASS_NAMES = "states", "labels", "num_tokens", "class_names"
WORDS = {
    **dict.fromkeys(("embeddings", "embedding", "hidden_states", "states", "features"), STATES),
    **dict.fromkeys(("X",), STATES),
    **dict.fromkeys(("labels", "label", "targets", "target", "y"), LABELS),
    "num_tokens": NUM_TOKENS,
    "class_names": CLASS_NAMES,
    "label_names": CLASS_NAMES,
}
"""What an array may be called, and what it then is."""
SPLITS = (
    *("train", "training", "validation", "valid", "val", "dev", "eval"),
    *("test", "testing"),
)
"""Words that say of which split an array or file is, in the order in which splits are shown."""
LAYERED = "embeddings|embedding|hidden_states|states|features|layers|layer"
"""What may stand before the number of a layer."""
UNDERSTOOD = (
    "arrays called embeddings, hidden_states, states, features or X (or layer_0, layer_1, ...) and "
    "labels, label, targets or y, in files called train.*, test.*, or with the split in their "
    "name: train/embeddings, train_embeddings, X_train"
)
_SPLIT = "|".join(SPLITS)


class Meaning(NamedTuple):
    """What a name says."""

    role: str
    split: str | None
    """Where the name says it."""
    layer: int | None
    """Where the array is one of several layers."""


@cache
def _patterns(kept: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Names with a usual word for the split, and names in a group of any name."""
    words = "|".join((*WORDS, *map(re.escape, kept)))
    number = rf"(?:{LAYERED})[/._-]?(?:layer[/._-]?)?(?P<layer>\d{{1,6}})"
    body = rf"(?:(?P<word>{words})|{number})"
    named = rf"(?:(?P<before>{_SPLIT})[/._-])?{body}(?:[/._-](?P<after>{_SPLIT}))?"
    grouped = rf"(?P<before>{NAME_PATTERN.pattern})/{body}(?P<after>)"
    return re.compile(named, re.ASCII), re.compile(grouped, re.ASCII)


def meaning(name: str, kept: tuple[str, ...] = ()) -> Meaning | None:
    """What the name of an array says; None where it says nothing that is understood.

    Args:
        name: of the array.
        kept: further words, each of which is a role of its own.
    """
    named, grouped = _patterns(kept)
    found = named.fullmatch(name)
    if found is None:
        found = grouped.fullmatch(name)
        if found is None or found["before"] in WORDS:
            return None
    before, after = found["before"], found["after"]
    if before and after and before != after:
        return None
    role = WORDS.get(found["word"], found["word"]) if found["word"] else STATES
    return Meaning(role, before or after or None, int(found["layer"]) if found["layer"] else None)


def split_of_file(stem: str) -> str | None:
    """The split that the name of a file says, where it says just one: ``news-train``."""
    found = {word for word in re.split(r"[^A-Za-z0-9]+", stem) if word in SPLITS}
    return found.pop() if len(found) == 1 else None


def in_order(splits: Sequence[str]) -> list[str]:
    """Splits in the order in which they are shown: those with usual names first."""
    known = {name: number for number, name in enumerate(SPLITS)}
    return sorted(dict.fromkeys(splits), key=lambda name: known.get(name, len(known)))


def numbers_of(pattern: str, names: Sequence[str]) -> dict[int, list[str]]:
    """Names that a pattern with one '*' fits, by the number that stands there."""
    before, _, after = pattern.partition("*")
    fits = re.compile(rf"{re.escape(before)}(\d{{1,6}}){re.escape(after)}", re.ASCII)
    found: dict[int, list[str]] = {}
    for name in names:
        if match := fits.fullmatch(name):
            found.setdefault(int(match[1]), []).append(name)
    return dict(sorted(found.items()))
