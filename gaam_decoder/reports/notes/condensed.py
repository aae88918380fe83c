"""What is said of a large report, in few lines: what is alike of many rows is said once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gaam_decoder.reports.notes.notes import notes, warnings
from gaam_decoder.reports.table.base import Table

LONGEST = 700
"""Characters of a note that is not a warning; of longer ones the middle is left out."""
LINE = 120
"""Characters of a line that several short notes share: a line of the report that is no terminal."""
ALIKE = 2
"""Notes that are said one by one although they are alike."""
WARNING = "WARNING: "
WHOLE = "--format html or markdown has it whole"
_NUMBER = re.compile(r"\d[\d.,e+-]*%?")


def condensed_notes(table: Table, said: set[str]) -> list[str]:
    """Warnings whole, and of the other notes those that were not said before.

    Args:
        table: whose.
        said: what stands above already, to which this adds.
    """
    warned = [f"{WARNING}{text}" for text in warnings(table)]
    rest = condensed(notes(table), table.labels())
    found = warned + [text for text in rest if text not in said]
    said |= set(found)
    return found


def condensed(lines: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Lines in their order; of those that say the same of several rows the first stands for all.

    Args:
        lines: such as ``notes`` gives.
        labels: of the rows, with which such lines begin.
    """
    longest_first = sorted(labels, key=len, reverse=True)
    alike: dict[str, list[str]] = {}
    for line in lines:
        label = next((one for one in longest_first if _is_of(line, one)), None)
        kind = line if label is None else "\0" + _kind(line[len(label) :])
        alike.setdefault(kind, []).append(line)
    found: list[str] = []
    for same in alike.values():
        if len(same) <= ALIKE:
            found += map(_short, same)
        else:
            found.append(f"{_short(same[0])} (and {len(same) - 1} more lines like this: {WHOLE})")
    return found


def joined(lines: Sequence[str]) -> list[str]:
    """Neighbours that fit into one line on one line; warnings stand alone."""
    found: list[str] = []
    for line in lines:
        together = f"{found[-1]} | {line}" if found else ""
        alone = line.startswith(WARNING) or (found and found[-1].startswith(WARNING))
        if found and not alone and len(together) <= LINE:
            found[-1] = together
        else:
            found.append(line)
    return found


def _is_of(line: str, label: str) -> bool:
    return line.startswith(label) and line[len(label) : len(label) + 1] in (":", " ")


def _kind(text: str) -> str:
    """What of a line is the same where it is said of another row."""
    return re.sub(r"#( and #|, #| \(#\))*", "#", _NUMBER.sub("#", text))


def _short(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    front = LONGEST * 2 // 3
    return f"{line[:front]} [...] {line[front - LONGEST :]}"
