"""Whether an HDF5 file is nothing but the plain arrays of a shard.

The file may be hostile, and libhdf5 is a large parser: no array is ever read through it, and no
link followed. This is the program of the process that ``inspector`` starts, so it imports nothing
of gaam and starts quickly and from anywhere. A copy of it looks at a few files under limits on
memory and processor time; where there is something about one of them, each is looked at again by a
copy that saw no other.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

MEMORY_BYTES = 256 * 2**20
"""What looking at one file may take beyond what the process has."""
PROCESSOR_SECONDS = 5
"""It takes milliseconds, but there are files on which libhdf5 runs in circles."""
MAX_ATTRIBUTE_BYTES = 1024
"""On disk; a string lies elsewhere in the file and takes 16 bytes here."""
MAX_REASON_CHARS = 500

Arrays = dict[str, dict[str, Any]]
"""See ``HDF5File`` of ``inspector``."""


def find_fault(path: str, attributes: dict[str, Any], arrays: Arrays) -> str | None:
    """Look at one file, in this process; the arguments are those of ``HDF5File``."""
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            if file.userblock_size:
                return "something lies before the HDF5 file"
            root = file["/"]
            return (
                _links_fault(root.id, arrays)
                or _attributes_fault(root, attributes)
                or next(
                    filter(None, (_array_fault(root.id, *item) for item in arrays.items())), None
                )
            )
    except Exception as error:  # noqa: BLE001 whatever the library raises: the file is no shard
        return f"not a readable HDF5 file ({type(error).__name__}: {error})"


def _links_fault(root: Any, arrays: Arrays) -> str | None:
    from h5py import h5g, h5l, h5o

    count = root.get_num_objs()
    if count > len(arrays) + 16:
        return f"{count} objects instead of {len(arrays)} arrays"
    names = [root.get_objname_by_idx(index) for index in range(count)]
    kinds = {h5l.TYPE_SOFT: "a soft link", h5l.TYPE_EXTERNAL: "an external link"}
    for name in names:
        kind = root.links.get_info(name).type
        if kind != h5l.TYPE_HARD:
            return f"{_text(name)!r} is {kinds.get(kind, 'a user-defined link')}"
        info = h5g.get_objinfo(root, name)
        if info.type != h5g.DATASET:
            what = {h5g.GROUP: "a group", h5g.TYPE: "a named type"}.get(info.type, "something else")
            return f"{_text(name)!r} is no data set but {what}"
        if h5o.get_info(root, name).rc != 1:
            return f"{_text(name)!r} has several names"
    if {_text(name) for name in names} != set(arrays):
        there = ", ".join(sorted(_text(name) for name in names))
        return f"data sets {there or 'none'} instead of {', '.join(sorted(arrays))}"
    return None


def _attributes_fault(thing: Any, expected: dict[str, Any]) -> str | None:
    from h5py import h5a, h5s, h5t

    where = thing.name
    count = h5a.get_num_attrs(thing.id)
    if count != len(expected):
        return f"{count} attributes at {where} instead of {len(expected)}"
    for name, value in expected.items():
        if not h5a.exists(thing.id, name.encode()):
            return f"no attribute '{name}' at {where}"
        attribute = h5a.open(thing.id, name.encode())
        kind = h5t.STRING if isinstance(value, str) else h5t.INTEGER
        if (
            attribute.get_space().get_simple_extent_type() != h5s.SCALAR
            or attribute.get_type().get_class() != kind
            or attribute.get_storage_size() > MAX_ATTRIBUTE_BYTES
        ):
            return f"the attribute '{name}' at {where} is not one {type(value).__name__}"
        found = thing.attrs[name]
        if found != value:
            return f"the attribute '{name}' at {where} is {str(found)[:80]!r}, not {value!r}"
    return None


def _array_fault(root: Any, name: str, array: dict[str, Any]) -> str | None:
    import h5py
    import numpy as np
    from h5py import h5d, h5s, h5t

    dataset = h5d.open(root, name.encode())
    how = dataset.get_create_plist()
    # the layout first: asking a virtual data set for its shape may open other files
    layouts = {h5d.VIRTUAL: "virtual", h5d.CHUNKED: "chunked", h5d.COMPACT: "compact"}
    if how.get_layout() != h5d.CONTIGUOUS:
        return f"'{name}' is {layouts.get(how.get_layout(), 'not contiguous')}, not contiguous"
    if how.get_external_count():
        return f"'{name}' lies in external files"
    if how.get_nfilters():
        return f"'{name}' passes through filters"
    space, shape = dataset.get_space(), tuple(array["shape"])
    stored = np.dtype(array["stored"])
    if array["dtype"] == "utf8":
        shape, stored = shape[:1], h5py.string_dtype("utf-8", shape[1])
    if space.get_simple_extent_type() != h5s.SIMPLE:
        return f"'{name}' is no array"
    if space.get_simple_extent_dims() != shape or space.get_simple_extent_dims(True) != shape:
        return f"'{name}' has the shape {space.get_simple_extent_dims()}, not {shape}"
    kind = dataset.get_type()
    if not kind.equal(h5t.py_create(stored)) or kind.committed():
        return f"'{name}' is not stored as {stored.str}"
    if dataset.get_offset() != array["offset"]:
        return f"'{name}' lies at {dataset.get_offset()}, the receipt says {array['offset']}"
    size = int(np.prod(shape)) * stored.itemsize
    if dataset.get_storage_size() != size:
        return f"'{name}' takes {dataset.get_storage_size()} bytes, not {size}"
    return _attributes_fault(h5py.Dataset(dataset), {"dtype": array["dtype"]})


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def _limit() -> None:
    """Bound what looking at one file may take."""
    statm = Path("/proc/self/statm")
    now = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 2**32
    for what, bound in (
        (resource.RLIMIT_AS, now + MEMORY_BYTES),
        (resource.RLIMIT_CPU, PROCESSOR_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(
            what, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard)
        )


def _reasons(files: list[dict[str, Any]]) -> list[Any]:
    """What is wrong with every file."""
    reasons = _in_a_fork(files)
    if len(files) > 1 and reasons != [None] * len(files):
        return [_in_a_fork([file])[0] for file in files]
    return reasons


def _in_a_fork(files: list[dict[str, Any]]) -> list[Any]:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            _limit()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the last words of a dying library
            reasons = (find_fault(**file) for file in files)
            cut = [reason and reason[:MAX_REASON_CHARS] for reason in reasons]
            os.write(writer, json.dumps(cut).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        reason = f"the HDF5 library dies of it ({signal.Signals(os.WTERMSIG(status)).name})"
        if os.WTERMSIG(status) == signal.SIGXCPU:
            reason = f"the HDF5 library is not done with it after {PROCESSOR_SECONDS} s"
        return [reason]
    return json.loads(answer) if answer else ["the HDF5 library dies of it"]


def _serve() -> None:
    import h5py  # noqa: F401 once, before the forks

    for line in sys.stdin:
        print(json.dumps(_reasons(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve()
