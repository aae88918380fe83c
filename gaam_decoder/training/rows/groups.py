"""Rows that are kept together where they learn, choose or are tested: by a column or a file."""

from __future__ import annotations

from pathlib import Path

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import CacheError, ConfigError, NotFoundError
from gaam_cache.messages import nearest, shortened
from gaam_cache.store.files import read_bytes
from gaam_decoder.recipe import Groups

LARGEST_GROUPS = 2**30
"""Bytes of a file of groups."""


def read_groups(given: str, cache: EmbeddingCache, split: str) -> Groups:
    """A name for every row of a split.

    A kept column of the cache goes before a file of the same name, which is meant where it is
    written with a folder: ``./session``.

    Args:
        given: name of a kept column, or path of a file with one name per line.
        cache: whose rows they are.
        split: the training split.

    Raises:
        NotFoundError: no such column, and no such file, or one that is not UTF-8.
        CacheError: a row has no name in the column.
        ConfigError: a line of the file is empty, or there is not one for every row.
    """
    if given in cache.columns:
        names = tuple(cache[split].column(given))
        if nameless := sum(not name.strip() for name in names):
            raise CacheError(
                f"the kept column '{shortened(given)}' does not say which rows belong together",
                expected=f"a name for every row of '{split}'",
                found=f"{nameless:,} of {len(names):,} rows without one",
                where=str(cache.root.absolute()),
                hint="rows without a name may belong to any group: leave them out of the data, or "
                "give --groups a file",
            )
        return Groups(names=names, source=given, kind="column")
    path = Path(given).expanduser()
    try:
        # links are the user's own; a pipe would be waited for, a device never ends
        text = read_bytes(path.resolve(), max_bytes=LARGEST_GROUPS).decode("utf-8-sig")
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_there(given, cache, error) from error
    names, rows = tuple(text.splitlines()), len(cache[split])
    empty = next((line for line, name in enumerate(names, 1) if not name.strip()), None)
    if empty is not None or len(names) != rows:
        raise ConfigError(
            f"'{shortened(str(path))}' does not fit the split '{split}'",
            expected=f"{rows} lines, one per row in the order of the data set, each with a name",
            found=f"{len(names)} lines" if empty is None else f"line {empty} is empty",
            where=str(path.absolute()),
        )
    return Groups(names=names, source=str(path), kind="file")


def _not_there(given: str, cache: EmbeddingCache, error: Exception) -> NotFoundError:
    kept = ", ".join(map(shortened, cache.columns))
    meant = nearest(given, cache.columns)
    return NotFoundError(
        f"cannot read the groups '{shortened(given)}'",
        expected=(
            f"--groups with a kept column of the cache ({kept})"
            if kept
            else "--groups with a kept column, of which the cache has none"
        )
        + ", or a file: UTF-8 text with one name per row of the train split",
        found=getattr(error, "strerror", None) or str(error),
        where=str(cache.root.absolute()),
        hint=f"did you mean '{meant}'?"
        if meant
        else None
        if kept
        else "gaam extract --keep-column NAME keeps one",
    )
