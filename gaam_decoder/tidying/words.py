"""A list of runs as a table that stays whole in 80 columns."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from gaam_cache.messages import brief, visible
from gaam_decoder.tidying.listing import Entry, Listing
from gaam_decoder.tidying.sizes import in_words

CUT = "..."
NAME, DATE, SIZE = 60, 10, 8
"""Columns of the first line of a run: 80 with what is between them."""
DECODER, DATA, SEEDS, ACCURACY = 26, 22, 14, 13
"""Of the second, which is indented by two."""
SHORT = {
    "tested on its own training rows": "on train rows",
    "labels shuffled": "shuffled",
    "no seed finished": "all failed",
}


def table(listing: Listing) -> str:
    """Two lines for every entry: its name whole, for a command to be given, and what it is."""
    head = f"{_left('run', NAME)} {_left('made, UTC', DATE)} {'size':>{SIZE}}\n  "
    head += f"{_left('mechanism + head', DECODER)} {_left('data, cache', DATA)} "
    head += f"{_left('seeds', SEEDS)} {'accuracy':>{ACCURACY}}"
    lines = [head, *(_entry(entry) for entry in listing.entries)] if listing.entries else []
    return "\n".join([*lines, *_below(listing)])


def _entry(entry: Entry) -> str:
    name = visible(entry.name)
    date = (entry.created or "")[:DATE]
    behind = f" {_left(date, DATE)} {in_words(entry.bytes):>{SIZE}}"
    wide = cell_len(name) > NAME
    first = f"{name}\n{' ' * NAME}{behind}" if wide else f"{_left(name, NAME)}{behind}"
    if entry.state == "damaged":
        return f"{first}\n  DAMAGED: {brief(entry.what or '', 200)}"
    if entry.state == "unfinished":
        seeds = f"{len(entry.done)} of {len(entry.seeds)} seeds finished"
        return f"{first}\n  UNFINISHED: {seeds}; {brief(entry.what or '', 200)}"
    failed = f" ({len(entry.failed)} failed)" if entry.failed else ""
    if entry.accuracy is None:
        why = entry.not_evaluated or ""
        accuracy = SHORT.get(why, why)
    else:
        accuracy = f"{100 * entry.accuracy:.1f}%" + " (test)" * entry.optimistic
    cells = (
        _left(f"{entry.attention} + {entry.head}", DECODER),
        _left(f"{brief(entry.dataset or '')}", DATA - 9) + f" {(entry.fingerprint or '')[:8]}",
        _left(f"{len(entry.seeds)}{failed}", SEEDS),
        f"{accuracy:>{ACCURACY}}",
    )
    return f"{first}\n  {' '.join(cells)}"


def _below(listing: Listing) -> list[str]:
    """What there is in all, and what the marks mean."""
    states = [entry.state for entry in listing.entries]
    text = f"{states.count('finished'):,} finished"
    text += "".join(
        f", {states.count(state):,} {state}" for state in ("damaged", "unfinished")
        if state in states
    )  # fmt: skip
    lines = [f"{text}; {in_words(listing.bytes)}"]
    if listing.selection is not None:
        lines.append(listing.selection.in_words())
        if {"damaged", "unfinished"} & set(states):
            lines.append("what is damaged or unfinished is listed whatever the filters say")
    if any(entry.optimistic for entry in listing.entries):
        lines.append("(test): the epoch was chosen on the test rows, which is optimistic")
    if any(entry.created_by_file for entry in listing.entries):
        lines.append("of runs of earlier versions the date is that of their file")
    if "unfinished" in states:
        lines.append(
            "unfinished: the same gaam train goes on; 'gaam runs remove --unfinished' removes it"
        )
    if "damaged" in states:
        lines.append("damaged: gaam verify says what repairs it")
    return lines


def _left(text: str, width: int) -> str:
    """Text in so many cells of a terminal; what is cut off ends in dots."""
    text = visible(text)
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    cut = set_cell_size(text, width - len(CUT)).rstrip()
    return set_cell_size(cut + CUT, width)
