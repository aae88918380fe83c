"""Rows that cannot be used: all are counted, the first are shown."""

from __future__ import annotations

from collections import Counter

from gaam_cache.errors import DataError

SHOWN = 3


def at(error: DataError, where: str) -> DataError:
    """The same refusal, which says where."""
    details = error.details
    return DataError(
        error.message,
        expected=details.get("expected"),
        found=details.get("found"),
        where=where,
        hint=details.get("to do"),
    )


class BadRows:
    """Why rows of one origin cannot be used; of many as much is kept as of few.

    Args:
        origin: where they are from.
    """

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._first: list[tuple[str, DataError]] = []
        self._reasons: Counter[str] = Counter()
        self.count = 0
        """How many there are so far."""

    def add(self, place: str, error: DataError) -> None:
        """Take note of one.

        Args:
            place: where it stands there.
            error: why it cannot be used.
        """
        self.count += 1
        self._reasons[error.message] += 1
        if len(self._first) < SHOWN:
            self._first.append((place, error))

    def refuse(self, total: int) -> None:
        """Raise one error for all of them, if there are any.

        Args:
            total: rows that were looked at.

        Raises:
            DataError: of a single row as it is; of several with the first of them.
        """
        if not self._first:
            return
        place, error = self._first[0]
        where = f"{self._origin}, {place}"
        if self.count == 1:
            raise at(error, where)
        message = f"{self.count:,} of {total:,} rows cannot be used"
        shown = [(place, error.details.get("found", "")) for place, error in self._first]
        if len(self._reasons) == 1:
            message += f": {error.message}"
        else:
            parts = [f"{reason} ({count:,})" for reason, count in self._reasons.most_common(SHOWN)]
            message += f": {', '.join(parts)}" + ", ..." * (len(self._reasons) > SHOWN)
            shown = [
                (place, f"{error.message}: {found}" if found else error.message)
                for (place, found), (_, error) in zip(shown, self._first, strict=True)
            ]
        lines = [f"{place}: {found}" for place, found in shown]
        if (more := self.count - len(lines)) > 0:
            lines.append(f"and {more:,} more")
        raise DataError(
            message,
            expected=_one_of_all("expected", self._first),
            found="\n".join(lines),
            where=f"{where} and {self.count - 1:,} more",
            hint=_one_of_all("to do", self._first),
        )


def _one_of_all(label: str, first: list[tuple[str, DataError]]) -> str | None:
    """What the errors say under a label, each once."""
    said = (error.details.get(label) for _, error in first)
    return "\n".join(dict.fromkeys(text for text in said if text)) or None
