"""Which tokens are those of a text: by the characters that each stands for.

T tokens.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
"""(T, 2): first character of every token, and the one behind its last."""
Truths = NDArray[np.bool_]


class Whose(NamedTuple):
    """Of every token of a text within its prompt."""

    own_T: Truths  # noqa: N815 a shape suffix
    """Whether it holds a character of the text."""
    alone_T: Truths  # noqa: N815
    """Whether it holds none of the prompt either: it can be cut."""


class Cut(NamedTuple):
    """Tokens of a text and its prompt that an encoder takes."""

    ids: list[int]
    start: int
    stop: int
    """Of the text's own tokens among them; equal where none is left."""
    truncated: bool


def whose(offset_T2: Offsets, special_T: Truths, first: int, end: int) -> Whose:
    """Tell the tokens of a text from those of its prompt.

    A token that holds characters of both, as when white space before a word belongs to it, is the
    text's. Tokens that the tokenizer puts around every text are nobody's.

    Numerics:
        Byte-level tokenizers take white space out of what a token is said to hold, so that a token
        of white space alone begins where it ends: it stands for what is before that place. At the
        very beginning such a token stands for the first character.

    Args:
        offset_T2: as the tokenizer says, of the text within its prompt.
        special_T: which tokens it put there itself.
        first: first character of the text.
        end: the one behind its last.
    """
    start_T, stop_T = offset_T2.T
    empty_T = start_T == stop_T
    start_T = np.where(empty_T, np.maximum(start_T - 1, 0), start_T)
    stop_T = np.where(empty_T, np.maximum(stop_T, 1), stop_T)
    own_T = (start_T < end) & (stop_T > first) & ~special_T
    return Whose(own_T, own_T & (start_T >= first) & (stop_T <= end))


def cut(
    ids: list[int], parts: Whose, max_length: int, side: Literal["left", "right"] = "right"
) -> Cut | None:
    """The tokens that an encoder takes: the whole prompt, and of the text what fits beside it.

    Args:
        ids: of the text within its prompt.
        parts: whose they are.
        max_length: tokens that it takes.
        side: at which end of the text it is cut.

    Returns:
        None where the text's own tokens do not stand together.
    """
    own = np.flatnonzero(parts.own_T)
    if not len(own):
        return Cut(ids[:max_length], 0, 0, len(ids) > max_length)
    start, stop = int(own[0]), int(own[-1]) + 1
    if stop - start != len(own):
        return None
    over = len(ids) - max_length
    if over <= 0:
        return Cut(ids, start, stop, truncated=False)
    places = np.flatnonzero(parts.alone_T)
    gone = places[-over:] if side == "right" else places[:over]
    if len(gone) < over or len(own) - over < 1:
        return Cut(ids[:max_length], 0, 0, truncated=True)
    kept = np.delete(np.asarray(ids), gone).tolist()
    return Cut(kept, start, stop - over, truncated=True)
