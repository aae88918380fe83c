"""Token ids of many texts in one array: no list of Python for every text.

N texts, S tokens of all of them, B texts of a batch, T tokens of the longest.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray


class Spanned(NamedTuple):
    """One text of which a part is pooled."""

    ids: NDArray[np.int64]
    start: int
    stop: int


class TokenIds(Sequence[Any]):
    """A sequence of texts, each an array of its token ids; ``Spanned`` where parts are pooled."""

    def __init__(
        self,
        flat_S: NDArray[np.int64],
        length_N: NDArray[np.int64],
        span_N2: NDArray[np.int64] | None = None,
    ) -> None:
        """Ids of all texts one behind the other, how many each has, and which are pooled."""
        self.length_N = length_N
        self.span_N2 = span_N2
        self._flat_S = flat_S
        self._end_N = np.cumsum(length_N)

    @classmethod
    def of(cls, texts: Sequence[Any]) -> TokenIds:
        """The same ids; texts that are some already come back as they are.

        Raises:
            TypeError, OverflowError: an id is no whole number of 64 bits.
        """
        if isinstance(texts, cls):
            return texts
        if texts and isinstance(texts[0], Spanned):
            spans = [(one.start, one.stop) for one in texts]
            plain = cls.of([one.ids for one in texts])
            return cls(plain._flat_S, plain.length_N, np.array(spans, np.int64))
        flat = array("q")  # refuses fractions, as NumPy does not, and is twice as fast
        for ids in texts:
            flat.fromlist(ids if isinstance(ids, list) else list(ids))
        length_N = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls(np.array(flat, np.int64), length_N)

    def take(self, row_B: NDArray[np.int64]) -> TokenIds:
        """Some of the texts, in this order."""
        length_B = self.length_N[row_B]
        ahead_B = np.cumsum(length_B) - length_B
        shift_B = self._end_N[row_B] - length_B - ahead_B
        place_S = np.arange(int(length_B.sum())) + np.repeat(shift_B, length_B)
        span_B2 = None if self.span_N2 is None else self.span_N2[row_B]
        return TokenIds(self._flat_S[place_S], length_B, span_B2)

    def padded(self, pad_id: int) -> NDArray[np.int64]:
        """All texts as (B, T), filled on the right."""
        shape = len(self), int(self.length_N.max(initial=0))
        ids_BT = np.full(shape, pad_id, np.int64)
        ids_BT[np.arange(shape[1]) < self.length_N[:, None]] = self._flat_S
        return ids_BT

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.length_N)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.int64] | Spanned: ...

    @overload
    def __getitem__(self, index: slice) -> TokenIds: ...

    def __getitem__(self, index: int | slice) -> NDArray[np.int64] | Spanned | TokenIds:
        """One text, or several."""
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        end = int(self._end_N[index])
        ids = self._flat_S[end - int(self.length_N[index]) : end]
        return ids if self.span_N2 is None else Spanned(ids, *map(int, self.span_N2[index]))

    def with_spans(self, span_N2: NDArray[np.int64]) -> TokenIds:
        """The same texts, of which parts are pooled: (N, 2), first token and the one behind."""
        return TokenIds(self._flat_S, self.length_N, span_N2)
