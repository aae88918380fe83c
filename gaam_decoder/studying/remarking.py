"""What came out otherwise than recorded and is no failure by itself: said, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

KINDS = {
    "verdict": ("verdict", "verdicts"),
    "within_margin": ("verdict", "verdicts"),
    "tuned": ("learning rate", "learning rates"),
    "lr": ("learning rate", "learning rates"),
    "undertrained": ("mark of under-training", "marks of under-training"),
    "encoder": ("name of an encoder", "names of encoders"),
    "dataset": ("name of a data set", "names of data sets"),
}
"""What is said, and is no failure by itself, as it is called once and several times: decisions that
fall on either side of a bound, and names of what the fingerprint of the cache has shown to be the
same."""
REMARKED = tuple(KINDS)
OTHER_CHOICE = ("weight decay", "weight decays")
"""That validation chose, beside the rate."""
MACHINE, CACHE = ("machine", "machines"), ("cache", "caches")
COUNTED = dict([*KINDS.values(), OTHER_CHOICE, MACHINE, CACHE])
REMARKED_OF_ALL = ("machines", "caches")
"""The same of a study as a whole; what was recorded by earlier versions says neither."""


def counted(of_all: Mapping[str, str], of_rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    """Of how many rows what is otherwise, and what of all.

    Args:
        of_all: remarks of the study as a whole, and what each is of.
        of_rows: the same of every row.
    """
    found = Counter(of_all.values())
    found.update(what for row in of_rows for what in set(row.values()))
    return {one: found[one] for one in COUNTED if found[one]}


def changed_in_words(changed: Mapping[str, int]) -> str:
    """All of it in one line; '' where nothing is otherwise."""
    parts = [f"{n} {COUNTED[one] if n > 1 else one}" for one, n in changed.items()]
    if not parts:
        return ""
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    return f"{listed} {'differ' if sum(changed.values()) > 1 else 'differs'}, see above"


def remarks_of_all(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines, and of what each is: a cache without a report has no numbers that could differ."""
    was, now = (_machines(one.get("machines", ())) for one in (old, new))
    if was and now and was != now:
        line = f"trained on another machine: {'; '.join(now)}, recorded: {'; '.join(was)}"
        yield line, MACHINE[0]
    before, after = old.get("caches", {}), new.get("caches", {})
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            line = f"cache '{name}': {after[name][:12]}, recorded: {before[name][:12]}"
            yield line, CACHE[0]


def _machines(machines: Sequence[Mapping[str, Any]]) -> list[str]:
    return [", ".join(f"{name} {value}" for name, value in one.items()) for one in machines]


def remarks_of_row(
    who: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Lines, and of what each is."""
    before = {**old, **(old.get("comparison") or {})}
    after = {**new, **(new.get("comparison") or {})}
    for name in REMARKED:
        if before.get(name) != after.get(name):
            said = name.replace("_", " ")
            line = f"{who}{said} {shown(after.get(name))}, recorded: {shown(before.get(name))}"
            same_rates = name == "tuned" and _rates(after.get(name)) == _rates(before.get(name))
            yield line, (OTHER_CHOICE if same_rates else KINDS[name])[0]


def _rates(tuned: Any) -> list[Any]:
    chosen = tuned if isinstance(tuned, list) else []
    return [one.get("lr") if isinstance(one, dict) else one for one in chosen]


def shown(value: Any) -> str:
    """A value in a message."""
    return "none" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
