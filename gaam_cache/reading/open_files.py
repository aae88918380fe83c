"""The files that were read last, kept open as far as the system's limit allows."""

from __future__ import annotations

import resource
import threading
from collections import OrderedDict
from pathlib import Path

from gaam_cache.format.files import Identity, open_regular

MOST_OPEN = 256


class ClosingFile:
    """An open file that is closed when the last reference to it goes.

    A descriptor is never closed, and its number given to another file, below a thread that reads.
    """

    def __init__(self, path: str) -> None:
        self._file = open_regular(Path(path))
        self.fileno = self._file.fileno

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


class OpenFiles:
    """At most an eighth of what the process may open, the last used."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, tuple[ClosingFile, Identity]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, path: str, identity: Identity) -> ClosingFile:
        """The open file; opened anew where ``identity`` is no longer that of last time.

        Raises:
            OSError: it cannot be opened.
            ValueError: it is not a regular file.
        """
        with self._lock:
            held = self._files.get(path)
            if held is not None and held[1] == identity:
                self._files.move_to_end(path)
                return held[0]
        file = ClosingFile(path)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        with self._lock:
            self._files[path] = file, identity
            self._files.move_to_end(path)
            while len(self._files) > max(4, min(MOST_OPEN, soft // 8)):
                self._files.popitem(last=False)
        return file
