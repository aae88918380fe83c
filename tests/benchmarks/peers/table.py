"""What was measured, as a table in Markdown and as the medians that it shows."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.benchmarks._machine import median_ratio
from tests.benchmarks.peers.contestants import CANNOT, MECHANISMS, Contestant

HEADINGS = (
    "who",
    "encode, s",
    "train, s",
    "both, s",
    "times gaam's",
    "memory, GB (encode, train)",
    "disk, MB (states, rest)",
    "lines",
    "accuracy, %",
)
DASH = "-"


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of every figure of one contestant over its rounds.

    Args:
        rounds: each with ``phases`` (``encode`` and ``train``: seconds, peak_bytes),
            ``state_bytes`` and ``other_bytes``.
    """
    phases = {
        name: {
            figure: statistics.median(one["phases"][name][figure] for one in rounds)
            for figure in ("seconds", "peak_bytes")
        }
        for name in ("encode", "train")
    }
    disk = {
        name: statistics.median(one[name] for one in rounds)
        for name in ("state_bytes", "other_bytes")
    }
    return {"phases": phases, "seconds": statistics.median(totals(rounds)), **disk}


def totals(rounds: Iterable[Mapping[str, Any]]) -> list[float]:
    """Seconds of every round, encoding and training together."""
    return [sum(phase["seconds"] for phase in one["phases"].values()) for one in rounds]


def markdown(
    titles: Mapping[str, str],
    contestants: Sequence[Contestant],
    found: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> str:
    """A table for every task, with what has to be known about its rows.

    Args:
        titles: task -> what it is.
        contestants: in the order of the rows.
        found: folder of the contestant -> ``rounds`` and ``accuracies``, or ``error``.
        settings: of the benchmark, shown as they are.
    """
    parts = [", ".join(f"{name} {value}" for name, value in settings.items()) + "."]
    for task, title in titles.items():
        rows, notes = [], []
        ours = next(c for c in contestants if c.task == task and c.who == "gaam")
        base = found.get(ours.folder, {}).get("rounds")
        for one in (c for c in contestants if c.task == task):
            got = found.get(one.folder, {"error": "not asked for"})
            if "error" in got:
                rows.append([one.who, *[DASH] * (len(HEADINGS) - 3), str(one.lines), DASH])
                notes.append(f"{one.who}: {got['error']}")
                continue
            rows.append(_row(one, got, base))
            notes.append(f"{one.who}: {one.note}{_states(got.get('states'))}{_again(got)}")
        for who, why in CANNOT.get(task, {}).items():
            rows.append([who, *[DASH] * (len(HEADINGS) - 1)])
            notes.append(f"{who}: {why}")
        parts += [f"**{title}**", _table(rows), "\n".join(f"- {note}." for note in notes)]
    return "\n\n".join(parts) + "\n"


def _row(
    one: Contestant, got: Mapping[str, Any], base: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    figures = medians(got["rounds"])
    encode, train = figures["phases"]["encode"], figures["phases"]["train"]
    ratio = DASH if base is None else f"{median_ratio(totals(got['rounds']), totals(base)):.2f}"
    return [
        one.who,
        f"{encode['seconds']:.1f}",
        f"{train['seconds']:.1f}",
        f"{figures['seconds']:.1f}",
        ratio,
        f"{encode['peak_bytes'] / 1e9:.2f}, {train['peak_bytes'] / 1e9:.2f}",
        f"{figures['state_bytes'] / 1e6:.1f}, {figures['other_bytes'] / 1e6:.1f}",
        str(one.lines),
        accuracies_in_words(got["accuracies"]),
    ]


def accuracies_in_words(accuracies: Mapping[str, Sequence[float]]) -> str:
    """Mean and standard deviation over seeds of every mechanism, in percent."""
    parts = []
    for name in sorted(accuracies, key=MECHANISMS.index):
        values = [100 * value for value in accuracies[name]]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        label = "" if len(accuracies) == 1 else f"{name} "
        parts.append(f"{label}{statistics.mean(values):.1f}{spread}")
    return ", ".join(parts)


def _states(states: Mapping[str, Any] | None) -> str:
    if states is None:
        return ""
    if "error" in states:
        return f"; its states could not be compared: {states['error']}"
    return (
        f"; its states differ from those of the plain loop by {states['largest']:.1g} at most, in "
        f"{states['rows']} rows by more than 1%"
    )


def _again(got: Mapping[str, Any]) -> str:
    if "again" not in got:
        return ""
    compiled = ", ".join(k for k, v in got["engines"].items() if v["compiled"]) or "nothing"
    again = got["again"]
    parts = ", ".join(f"{k} {v['seconds']:.1f}" for k, v in again["engines"].items())
    return f"; compiles {compiled}; when run again it trains in {again['seconds']:.1f} s ({parts})"


def _table(rows: Sequence[Sequence[str]]) -> str:
    ruler = ["---", *["---:"] * (len(HEADINGS) - 2), "---"]
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADINGS, ruler, *rows))
