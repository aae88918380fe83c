"""The files of an encoder, which must stay what they were when the first of them was read."""

from __future__ import annotations

from collections.abc import Iterable

from gaam_cache.encoders._located import Located
from gaam_cache.errors import ConfigError
from gaam_cache.hub.fetch import IS_WEIGHTS, WANTED


class Watched:
    """What was hashed is what was loaded, though each file is opened more than once.

    Args:
        located: the folder; what the file system says of it is noted now.
    """

    def __init__(self, located: Located) -> None:
        self._located = located
        self._seen = located.identities()
        self._used: set[str] = set()

    def hashes(self, tokenizer_files: Iterable[str]) -> dict[str, str]:
        """Those of ``Located.hashes``.

        Raises:
            ConfigError: a file was changed since.
        """
        files = self._located.hashes(tokenizer_files)
        small = {n for n in self._seen if WANTED.fullmatch(n) and not IS_WEIGHTS.fullmatch(n)}
        self._used = files.keys() | small
        self.used(())
        return files

    def used(self, names: Iterable[str]) -> None:
        """These decide the numbers too, and have been read; raises as ``hashes``."""
        self._used |= set(names)
        now = self._located.identities()
        changed = sorted(n for n in self._used if now.get(n) != self._seen.get(n))
        if changed:
            raise ConfigError(
                "the encoder was changed while it was read",
                expected="files that stay as they are",
                found=", ".join(changed),
                where=str(self._located.path),
                hint="run the same again when whoever writes them is done",
            )
