"""Words and numbers that several parts of a report say."""

from collections.abc import Sequence

from gaam_cache.common.messages import join_first
from gaam_decoder.reports.entries import Entry

NAMED = 3  # decoders that a conclusion names; it counts the rest
SELECT_NOTES = {
    "last": "the last epoch counts, no rows are held out: learning rates are not "
    "tuned, and there is no linear probe to compare with",
    "test": "epoch chosen on test rows: optimistic, do not quote it as a test result",
}
TEMPERATURE = (
    "a temperature is fitted for every seed and fold, by the log loss of its "
    "validation rows, of label sets one for all labels (Guo et al. 2017); log loss, "
    "Brier score, ECE and the reliability diagram divide the logits by it; all other "
    "scores, AUROC too, take the logits as they are"
)


def chance(entry: Entry) -> float:
    """Accuracy without information, a fraction: the share of the largest test class.

    Of other tasks, the score of the prediction that looks at no row.
    """
    if not entry.task.has_classes:
        return entry.trivial_score
    return float(entry.labels_per_class.max() / entry.labels_per_class.sum())


def in_sentence(label: str) -> str:
    """The label of a decoder in a sentence: ``'none'`` is no word of it."""
    return "'none'" if label == "none" else label


def capitalised(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[0].upper() + text[1:]


def enumerated(names: Sequence[str], max_shown: int) -> str:
    """The names as a part of a sentence: ``a, b and c``, or ``a, b and 4 more``."""
    if len(names) == 1 or len(names) > max_shown:
        return join_first(names, max_shown)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def with_verb(names: Sequence[str], max_shown: int = NAMED) -> str:
    """The names as the subject of a sentence, with its verb."""
    verb = "is" if len(names) == 1 else "are"
    return f"{enumerated(names, max_shown)} {verb}"
