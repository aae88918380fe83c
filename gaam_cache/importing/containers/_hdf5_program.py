"""The program of the process that reads somebody's HDF5 file for an import.

The file may be damaged or hostile, and libhdf5 is a large parser: it runs here, under limits on
memory and processor time, and imports nothing of gaam. Only what lies in the file itself is read:
no link but hard ones is followed, no other file opened, no filter loaded that libhdf5 lacks. Each
line of the input is a question in JSON; the answer is a line of JSON and the bytes it announces.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from pathlib import Path
from typing import Any

MEMORY_BYTES = 2**30
"""What reading may take beyond what the process has: a chunk, its cache, and what is asked for."""
CHUNK_CACHE_BYTES = 256 * 2**20
"""Also the largest chunk: more than that is read whole for every row in it."""
PROCESSOR_SECONDS = 60
"""For one question; at most some tens of MB are asked for at a time."""
MOST_OBJECTS = 10_000
DEEPEST = 32
MOST_CLASS_NAMES = 100_000
BUILT_IN_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
"""deflate, shuffle, fletcher32, szip, nbit, scaleoffset, and h5py's lzf."""
MOST_STRING_BYTES = 64 * 2**20
"""In one answer."""


class _Listing:
    """All arrays of a file."""

    def __init__(self, file: Any) -> None:
        self.arrays: list[dict[str, Any]] = []
        self.class_names: dict[str, list[str]] = {}
        self._seen: set[int] = set()
        self._count = 0
        self._size = file.id.get_filesize()
        self._walk(file["/"], "")

    def _walk(self, group: Any, prefix: str) -> None:
        from h5py import h5g, h5l, h5o

        self._note_classes(group, prefix)
        address = h5o.get_info(group.id).addr
        if address in self._seen or prefix.count("/") > DEEPEST:
            raise ValueError(f"the group '{prefix or '/'}' is in itself, or too deep")
        self._seen.add(address)
        self._count += group.id.get_num_objs()
        if self._count > MOST_OBJECTS:
            raise ValueError(f"more than {MOST_OBJECTS:,} objects")
        for index in range(group.id.get_num_objs()):
            raw = group.id.get_objname_by_idx(index)
            name = prefix + raw.decode("utf-8", "backslashreplace")
            kind = group.id.links.get_info(raw).type
            if kind != h5l.TYPE_HARD:
                what = {h5l.TYPE_SOFT: "a soft link", h5l.TYPE_EXTERNAL: "an external link"}
                self._add(name, (), "link", what.get(kind, "a link") + ", which is not followed")
                continue
            found = h5g.get_objinfo(group.id, raw).type
            if found == h5g.GROUP:
                self._walk(group[raw], f"{name}/")
            elif found == h5g.DATASET:
                try:
                    self._dataset(name, group.id, raw)
                except Exception as error:  # noqa: BLE001 whatever the library raises
                    self._add(name, (), "unknown", f"{type(error).__name__}: {error}"[:200])

    def _add(self, name: str, shape: Any, dtype: str, fault: str | None) -> None:
        shape = [int(n) for n in shape]
        self.arrays.append({"name": name, "shape": shape, "dtype": dtype, "fault": fault})

    def _dataset(self, name: str, group: Any, raw: bytes) -> None:
        import h5py
        from h5py import h5d, h5s

        opened = h5d.open(group, raw)
        how = opened.get_create_plist()
        # the layout first: asking a virtual data set for its shape may open other files
        if how.get_layout() == h5d.VIRTUAL or how.get_external_count():
            self._add(name, (), "elsewhere", "its numbers lie in other files, which are not opened")
            return
        dataset = h5py.Dataset(opened)
        if opened.get_space().get_simple_extent_type() != h5s.SIMPLE:
            self._add(name, (), "scalar", "no array")
            return
        self._note_classes(dataset, name)
        dtype = _dtype_word(dataset)
        self._add(name, dataset.shape, dtype, self._fault(dataset, how))

    def _fault(self, dataset: Any, how: Any) -> str | None:
        from h5py import h5d

        filters = {how.get_filter(i)[0] for i in range(how.get_nfilters())}
        if strange := filters - BUILT_IN_FILTERS:
            return f"filter {min(strange)} is not one of HDF5's own: save it with gzip, or none"
        size = math.prod(dataset.shape) * dataset.dtype.itemsize
        if not size:
            return None
        if how.get_layout() == h5d.CHUNKED:
            chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
            if chunk > CHUNK_CACHE_BYTES:
                return f"a chunk of {chunk:,} bytes, at most {CHUNK_CACHE_BYTES:,} are read"
            pairs = zip(dataset.shape, dataset.chunks, strict=True)
            chunks = math.prod(-(-n // m) for n, m in pairs)
            there = dataset.id.get_num_chunks()
            return f"{there:,} of {chunks:,} chunks were written" if there < chunks else None
        there = dataset.id.get_storage_size()
        if there < size or there > self._size:
            return f"{there:,} of {size:,} bytes were written"
        return None

    def _note_classes(self, thing: Any, name: str) -> None:
        from h5py import h5a

        if h5a.exists(thing.id, b"class_names"):
            attribute = h5a.open(thing.id, b"class_names")
            if attribute.get_space().get_simple_extent_npoints() > MOST_CLASS_NAMES:
                raise ValueError(f"more than {MOST_CLASS_NAMES:,} class names")
            names = thing.attrs["class_names"]
            texts = [n.decode() if isinstance(n, bytes) else n for n in list(names)]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError(f"the attribute 'class_names' at /{name} holds no strings")
            self.class_names[name.rstrip("/")] = texts


def _dtype_word(dataset: Any) -> str:
    import h5py

    dtype = dataset.dtype
    if h5py.check_string_dtype(dtype) is not None:
        return "str"
    if dtype.hasobject or dtype.names or dtype.subdtype:
        return str(dtype)[:60]
    said = dataset.attrs.get("dtype") if dtype.name == "uint16" else None
    return "bfloat16" if said in ("bfloat16", b"bfloat16") else dtype.newbyteorder("=").name


def _read(dataset: Any, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    import h5py
    import numpy as np

    rows = slice(question["start"], question["stop"])
    outer = question["outer"]
    index = rows if outer is None else (outer, rows)
    if h5py.check_string_dtype(dataset.dtype) is not None:
        texts = [str(text) for text in dataset.asstr()[index]]
        if sum(map(len, texts)) > MOST_STRING_BYTES:
            raise ValueError(f"strings of more than {MOST_STRING_BYTES:,} characters")
        return {}, json.dumps(texts).encode()
    values = dataset[index]
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return {"dtype": little.dtype.str, "shape": little.shape}, little.tobytes()


def _limit_memory() -> None:
    statm = Path("/proc/self/statm")
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        _set_soft(resource.RLIMIT_AS, now + MEMORY_BYTES)
    _set_soft(resource.RLIMIT_CORE, 0)


def _set_soft(what: int, bound: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))


def _serve() -> None:
    import h5py

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the last words of a dying library
    _limit_memory()
    file = None
    for line in sys.stdin.buffer:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _set_soft(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + PROCESSOR_SECONDS)
        question = json.loads(line)
        about: dict[str, Any] = {}
        try:
            if file is None:
                options = {"locking": False, "rdcc_nbytes": CHUNK_CACHE_BYTES, "rdcc_nslots": 10007}
                file = h5py.File(question["path"], "r", **options)
            if question["name"] is None:
                listing = _Listing(file)
                about = {"class_names": listing.class_names}
                raw = json.dumps(listing.arrays).encode()
            else:
                about, raw = _read(file[question["name"]], question)
        except Exception as error:  # noqa: BLE001 whatever the library raises: the file is bad
            about, raw = {"error": f"{type(error).__name__}: {error}"[:500]}, b""
        answer = json.dumps({**about, "bytes": len(raw)}).encode() + b"\n"
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
