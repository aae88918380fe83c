"""Arrays in a file of HDF5, which another process reads; see ``_hdf5_program``."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.format.hdf5_process import pipes_of, start_process
from gaam_cache.importing.containers import _hdf5_program
from gaam_cache.importing.containers._base import STRINGS, Array, Container, refusing

_PROGRAM = str(Path(_hdf5_program.__file__).absolute())
MOST_ANSWERED = 2**31
"""Bytes; more is no answer to anything that is asked."""


class HDF5(Container):
    """Groups, and filters of HDF5's own, are fine; what lies in other files is not read."""

    suffixes = (".h5", ".hdf5", ".hdf")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._process = start_process(_PROGRAM)
        try:
            with refusing(str(path)):
                about, raw = self.ask(name=None)
                names = about["class_names"].items()
                self.class_names = {place: tuple(found) for place, found in names}
                self.arrays = [_Dataset(self, spec) for spec in json.loads(raw)]
        except BaseException:
            self.close()
            raise

    def ask(self, **question: Any) -> tuple[dict[str, Any], bytes]:
        """What the process answers, and the bytes with it.

        Raises:
            ValueError: the file is damaged; or what looked into it died.
        """
        questions, answers = pipes_of(self._process)
        about, raw = None, b""
        with suppress(BrokenPipeError, json.JSONDecodeError):
            path = str(self.path.resolve())
            questions.write(json.dumps({"path": path, **question}).encode() + b"\n")
            questions.flush()
            about = json.loads(answers.readline(2**24))
            if not 0 <= about["bytes"] <= MOST_ANSWERED:
                raise ValueError("the process that reads it answers nonsense")
            raw = answers.read(about["bytes"])
        if about is None or len(raw) != about["bytes"]:
            raise ValueError(self._last_words())
        if "error" in about:
            raise ValueError(about["error"])
        return about, raw

    def _last_words(self) -> str:
        self._process.stdin.close()  # type: ignore[union-attr]
        code = self._process.wait()
        if code == -signal.SIGXCPU:
            return f"the HDF5 library is not done with it after {_hdf5_program.PROCESSOR_SECONDS} s"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the HDF5 library dies of it ({how})"

    def close(self) -> None:
        """Read nothing more."""
        super().close()
        with suppress(OSError, ValueError):
            self._process.kill()  # it only reads
            self._process.communicate()


class _Dataset(Array):
    def __init__(self, container: HDF5, spec: dict[str, Any]) -> None:
        self.name, self.fault = spec["name"], spec["fault"]
        self.shape, self.dtype = tuple(spec["shape"]), spec["dtype"]
        self.where = f"{container.path}: {self.name}"
        self._container = container

    def read(self, start: int, stop: int, outer: int | None = None) -> NDArray[Any]:
        """See ``Array.read``."""
        with refusing(self.where):
            question = {"name": self.name, "start": start, "stop": stop, "outer": outer}
            about, raw = self._container.ask(**question)
            count = stop - start
            if self.dtype == STRINGS:
                texts = json.loads(raw)
                found = np.empty(count, object)
                found[:] = texts
                return found
            inner = self.shape[1:] if outer is None else self.shape[2:]
            return np.frombuffer(raw, about["dtype"]).reshape(count, *inner)
