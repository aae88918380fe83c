"""What the cells of a report's table say of an entry: as text, and for programs."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gaam_decoder import stats
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.table import ON_TRAINING_ROWS
from gaam_decoder.stats.scores.base import Interval

ValuesForPrograms = Callable[[Entry], Mapping[str, object]]
"""Makes the values of an entry for programs, by what follows the column's header."""


class Cell(str):
    """The text of a cell with several numbers, or with more than a number.

    In CSV each of its parts has a column of its own.
    """

    parts: Mapping[str, str]
    """Name of a column -> its text. A name that is empty, or that begins with a space,
    follows the header of the cell."""

    def __new__(cls, text: str, parts: Mapping[str, str]) -> "Cell":
        cell = super().__new__(cls, text)
        cell.parts = parts
        return cell


class Text(str):
    """The text of a cell that is no number, even where it looks like one.

    Such are names that people choose, for classes or data sets, and lists of layers.
    CSV leaves it as it is.
    """


def with_std(mean: str, std: str) -> Cell:
    """A mean with its standard deviation in brackets."""
    return Cell(f"{mean} ({std})", {"": mean, " sd": std})


def range_cell(text: str, low: str = "low", high: str = "high") -> str:
    """The cell of a text such as ``0.1 to 0.3``; other texts stay as they are.

    ``low`` and ``high`` are what CSV writes behind the header.
    """
    first, to, last = text.partition(" to ")
    return Cell(text, {f" {low}": first, f" {high}": last}) if to else text


def shares_cell(layers: Sequence[tuple[int, float]]) -> Cell:
    """Layers with their shares in percent, such as ``12 (31.0%), 7 (8.2%)``."""
    parts = {}
    for rank, (layer, share) in enumerate(layers, 1):
        number = f" {rank}" if len(layers) > 1 else ""
        parts[number] = str(layer)
        parts[f"{number} share %"] = f"{share:.1f}"
    return Cell(", ".join(f"{layer} ({share:.1f}%)" for layer, share in layers), parts)


def p_value(p: float | None) -> str:
    """A p-value with three or four digits."""
    if p is None:
        return "-"
    if p < 1e-4:
        return Cell("<0.0001", {"": f"{p:.2g}"})
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def marks(entry: Entry) -> str:
    """Marks behind the name of an entry whose score is to be read with care.

    It is measured on training rows, is optimistic since test rows selected the epoch,
    or may be too low (†), see ``Entry.is_undertrained``.
    """
    text = ""
    if entry.on_training_rows:
        text += f" ({ON_TRAINING_ROWS})"
    if entry.select == "test":
        text += " (optimistic)"
    if entry.is_undertrained:
        text += " †"
    return text


def verdict(claim: stats.Claim) -> str:
    """The verdict of a claim, and whether a shown difference is too small to matter."""
    if claim.significant and claim.negligible:
        return f"{claim.verdict} (within margin)"
    return claim.verdict


def single_value(value: Callable[[Entry], object]) -> ValuesForPrograms:
    """Make a function that gives programs one value, under the column's own header."""
    return lambda entry: {"": value(entry)}


def interval_bounds(interval_of: Callable[[Entry], Interval]) -> ValuesForPrograms:
    """Make a function that gives programs both ends of an interval.

    They stand under the column's header with `` low`` and `` high`` behind it.
    """

    def numbers(entry: Entry) -> dict[str, object]:
        low, high = interval_of(entry) or (None, None)
        return {" low": low, " high": high}

    return numbers


def claim_of(entry: Entry) -> stats.Claim:
    """The claim of an entry that is compared with the baseline."""
    assert entry.comparison is not None
    return entry.comparison.claim


def validation_accuracy(entry: Entry) -> float | None:
    """Mean validation accuracy (R2, micro-F1) of a candidate of a tuning.

    None for an entry that does not stand beside other candidates.
    """
    return entry.validation_score if entry.is_candidate else None


def validation_text(entry: Entry) -> str:
    """The mean validation score of a candidate of a tuning; empty for other entries."""
    score = validation_accuracy(entry)
    if score is None:
        return ""
    return entry.task.in_words(score).removesuffix("%")


def seeds_text(entry: Entry) -> str:
    text = str(len(entry.seeds))
    if entry.failed:
        text += f" ({len(entry.failed)} failed)"
    return text


def parameters_text(entry: Entry) -> str:
    return f"{entry.parameters['attention']:,} / {entry.parameters['total']:,}"


def mean_seconds(entry: Entry) -> float | None:
    """Mean seconds of training of a finished seed; None without one."""
    if not entry.finished:
        return None
    return float(np.mean([entry.seconds[seed] for seed in entry.finished]))


def seconds_text(entry: Entry) -> str:
    seconds = mean_seconds(entry)
    return "-" if seconds is None else f"{seconds:.2f}"


def difference_text(entry: Entry) -> str:
    """The difference to the baseline; a star says that it is significant."""
    claim = claim_of(entry)
    text = entry.compared_score.score.difference(claim.difference)
    return f"{text}*" if claim.significant else text


def difference_interval_text(entry: Entry) -> str:
    """The interval of the difference to the baseline, corrected by Holm."""
    interval = claim_of(entry).interval_corrected
    return entry.compared_score.score.span(interval, signed=True)


def verdict_text(entry: Entry) -> str:
    return verdict(claim_of(entry))


def training_p(entry: Entry) -> float | None:
    """The p-value of the t test over folds; None without a cross-validation."""
    if entry.comparison is None or entry.comparison.fold_test is None:
        return None
    return entry.comparison.fold_test.p


def training_p_text(entry: Entry) -> str:
    if entry.comparison is None or entry.comparison.fold_test is None:
        return ""
    return p_value(entry.comparison.fold_test.p)


def decide_text(entry: Entry) -> str:
    """What would decide an undecided comparison with the baseline.

    For a comparison without a claim, the reason; empty if it is decided.
    """
    claim = claim_of(entry)
    if claim.no_claim_reason:
        return f"no claim: {claim.no_claim_reason}"
    return what_would_decide(claim)


def is_known_what_decides(claim: stats.Claim) -> bool:
    """Whether a number of seeds, test rows or groups is known that would decide."""
    numbers = (
        claim.seeds_to_decide,
        claim.rows_to_decide,
        claim.groups_to_decide,
        claim.factor_to_decide,
    )
    return any(number is not None for number in numbers)


def what_would_decide(claim: stats.Claim) -> str:
    """The seeds, test rows or groups that would decide an undecided claim.

    Empty if it is decided, or has no test.
    """
    if claim.verdict != "undecided" or claim.p is None:
        return ""
    ways = []
    if claim.seeds_to_decide is not None:
        ways.append(f"about {claim.seeds_to_decide:,} seeds")
        # the estimate is rough, and these seeds did not decide
        if claim.seeds_to_decide == claim.num_seeds:
            ways = ["a few more seeds"]
    if claim.rows_to_decide is not None:
        ways.append(f"about {claim.rows_to_decide:,} test rows")
    if claim.groups_to_decide is not None:
        ways.append(f"about {claim.groups_to_decide:,} groups")
    if ways:
        return " or ".join(ways)

    units = "groups" if claim.num_groups else "test rows"
    if claim.factor_to_decide is not None:
        return f"{claim.factor_to_decide:,} times as many seeds and {units}"
    if claim.limited_by_training:
        return f"more training rows (no number of seeds or {units} suffices)"
    return f"more {units} (too few differ to say how many)"
