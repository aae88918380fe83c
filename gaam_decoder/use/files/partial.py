"""A file on its way: beside OUT a folder OUT.partial, until OUT is there completely.

It holds ``journal``, what came by stdin, ``result`` while that is written, and who works on it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gaam_cache.engines.sharing.holder import Holder
from gaam_cache.engines.sharing.lease import Leases
from gaam_cache.errors import ConfigError, StorageError
from gaam_cache.format.digest import chunks, hash_file
from gaam_cache.format.files import make_folder, sync_folder, write_file, write_synced
from gaam_cache.format.refusals import storage_errors
from gaam_cache.format.targets import check_file
from gaam_decoder.use.files.journal import Journal, kept_rows, result_of

JOURNAL = "journal"
RESULT = "result"
LEASES = "leases"
STDIN = "stdin"


class Partial:
    """The folder beside ``out``, of which this process is the only user while the context lasts.

    Args:
        out: the file that is to be; a link means what it leads to.
        overwrite: whether one may be there, or another work in the folder.
        source: the file that is read, if one is.

    Raises:
        ConfigError: ``out`` is there already or the one that is read, or no file can be there.
        StorageError: another process works on it, or the file system refused.
    """

    def __init__(self, out: Path, *, overwrite: bool, source: Path | None) -> None:
        self._said = out
        self.out = Path(os.path.realpath(out))
        self.folder = _folder(self.out)
        self._overwrite = overwrite
        self._check(source)
        with storage_errors(self.out):
            make_folder(self.folder)
        self._leases = Leases(self.folder / LEASES)
        taken = self._leases.take("work")
        if isinstance(taken, Holder):
            self._leases.close()
            raise StorageError(
                f"another process writes '{out}'",
                found=taken.in_words(),
                where=str(self.folder),
                hint="wait for it, or choose another --out",
            )
        self._lease = taken
        self._remove_litter()

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *reason: object) -> None:
        # what is given back is written, for which a full disk has no room
        if not self._lease.lost():
            self._lease.done()
        self._leases.close()
        with suppress(OSError):  # there is something in it to go on with, or of another process
            (self.folder / LEASES).rmdir()
            self.folder.rmdir()

    def _check(self, source: Path | None) -> None:
        out, said = self.out, self._said
        check_file(out, option="--out")
        if not os.path.lexists(out):
            return
        where = str(out)
        if source is not None and source.exists() and out.samefile(source):
            raise ConfigError(
                "--out is the file that is read",
                expected="another file",
                where=where,
                hint="choose another --out",
            )
        # what ended between its last step and taking itself away is ours to end
        finished = result_of(self.folder / JOURNAL)
        if not self._overwrite and (finished is None or hash_file(out) != finished):
            raise ConfigError(
                f"'{said}' is there already",
                expected="--out FILE that is not there yet",
                where=where,
                hint="replace it with --overwrite, or choose another --out",
            )

    def _remove_litter(self) -> None:
        """What a process leaves that is killed while it writes."""
        with storage_errors(self.out):
            for path in [self.folder / RESULT, *self.folder.glob(".*.tmp")]:
                path.unlink(missing_ok=True)

    def journal(self, recipe: dict[str, object]) -> Journal:
        """The journal of this work."""
        return Journal(self.folder / JOURNAL, recipe, anew=self._overwrite)

    def spooled(self, stream: BinaryIO, format: str) -> Path:
        """A file of all that comes by a stream."""
        path = self.folder / f"{STDIN}.{format}"
        write_file(path, chunks(stream))
        return path

    def publish(self, journal: Journal, content: Iterable[bytes]) -> None:
        """Let ``out`` be there with its whole content; nothing is left to go on with."""
        digest = hashlib.sha256()

        def hashed() -> Iterator[bytes]:
            for piece in content:
                digest.update(piece)
                yield piece

        result = self.folder / RESULT
        with storage_errors(self.out):
            write_synced(result, hashed())
        journal.finish(digest.hexdigest())
        self._check(None)
        with storage_errors(self.out):
            result.rename(self.out)
            sync_folder(self.out.parent)
        with suppress(OSError):
            for path in [*self.folder.glob(f"{STDIN}.*"), self.folder / JOURNAL]:
                path.unlink()


def kept_in_words(out: Path | None) -> str:
    """What an interrupted prediction leaves, for people."""
    rows = 0 if out is None else kept_rows(_folder(Path(os.path.realpath(out))) / JOURNAL)
    if not rows:
        return "nothing that was there before was changed"
    return f"{rows:,} rows are predicted and kept beside '{out}': the same command goes on"


def _folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")
