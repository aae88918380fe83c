"""Files that were cut off, changed, or made to lie are refused, and nothing is left of them."""

from __future__ import annotations

import io
import json
import random
import resource
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gaam_cache.importing.containers import _hdf5_program, hdf5

import gaam_cache
from gaam_cache.errors import GaamError
from tests.cache.importing.making import FORMATS, labels, run, safetensors_bytes, save, states

GIVEN = {"embeddings": states(6), "labels": labels(6)}
STRAYS = 60
"""Bytes that are changed of every file, beside all that begin it."""


def outcome(file: Path, out: Path) -> GaamError | None:
    """The refusal, or None where a cache was made, which must then be what was given."""
    try:
        run(file, out=out)
    except GaamError as error:
        assert not out.exists(), "something was written of a file that is refused"
        return error
    return None


@pytest.mark.parametrize("suffix", [*FORMATS, "npy"])
def test_a_file_that_was_cut_off_anywhere_is_refused(suffix: str, tmp_path: Path) -> None:
    name = "train_embeddings" if suffix == "npy" else "train"
    file = tmp_path / f"{name}.{suffix}"
    if suffix == "npy":
        np.save(file, GIVEN["embeddings"])
    else:
        save(file, GIVEN)
    whole = file.read_bytes()
    step = 173 if suffix.endswith("h5") else 3  # a process for each of HDF5
    for length in range(0, len(whole), step):
        file.write_bytes(whole[:length])
        error = outcome(file, tmp_path / "c")
        assert error is not None, length
        assert error.exit_code in (2, 3)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_changed_byte_is_refused_or_changes_what_is_stored_as_the_format_allows(
    suffix: str, tmp_path: Path
) -> None:
    """Safetensors and plain HDF5 have no digest of their numbers; a zip has, and so gzip's."""
    file = save(tmp_path / f"train.{suffix}", GIVEN)
    whole = file.read_bytes()
    generator = random.Random(suffix)
    places = [*range(min(len(whole), 60)), *generator.sample(range(len(whole)), STRAYS)]
    if suffix.endswith("h5"):
        places = generator.sample(range(len(whole)), 40)  # a process for each
    refused = 0
    for number, place in enumerate(places):
        changed = bytearray(whole)
        changed[place] ^= 1 << (number % 8)
        file.write_bytes(changed)
        out = tmp_path / str(number)
        if outcome(file, out) is None:
            cache = gaam_cache.open_cache(out)
            found = cache["train"].embeddings[:], cache["train"].labels
            if suffix.endswith("npz"):
                assert np.array_equal(found[0], GIVEN["embeddings"]), place
                assert np.array_equal(found[1], GIVEN["labels"]), place
        else:
            refused += 1
    # much of HDF5's own is room that is not used
    assert refused >= (1 if suffix.endswith("h5") else len(places) / 4)


def lies() -> Iterator[tuple[str, Any]]:
    """Changes of a header of safetensors."""
    spec = {"dtype": "F32", "shape": [6, 3, 4], "data_offsets": [0, 288]}
    for key, value in (
        *(("shape", [6, 3, 5]), ("shape", [-6, -3, 4]), ("shape", [6.0, 3, 4]), ("shape", [True])),
        *(("shape", "6"), ("shape", [2**62, 2**62, 4]), ("shape", [10**13 // 4, 1, 1])),
        *(("dtype", "F64"), ("dtype", 3), ("dtype", None), ("data_offsets", [0])),
        *(("data_offsets", [0, 10**13]), ("data_offsets", [288, 0]), ("data_offsets", [-4, 284])),
        *(("data_offsets", [4, 292]), ("data_offsets", "ab"), ("data_offsets", [0.0, 288])),
    ):
        yield f"{key} {value}", {**spec, key: value}
    yield "no offsets", {"dtype": "F32", "shape": [6, 3, 4]}
    yield "a list", [1, 2]
    yield "null", None


@pytest.mark.parametrize(
    ("name", "spec"), list(lies()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_a_header_of_safetensors_that_lies(name: str, spec: Any, tmp_path: Path) -> None:
    whole = safetensors_bytes(GIVEN)
    size = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + size])
    header["embeddings"] = spec
    text = json.dumps(header).encode()
    (tmp_path / "train.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + whole[8 + size :]
    )
    assert outcome(tmp_path / "train.safetensors", tmp_path / "c") is not None


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"[]", b"{", b'{"a": 1}', b"{}", b"\xff\xfe", b"[" * 5000, b'{"__metadata__": 3}'),
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],'
        b'"data_offsets":[0,1]}}',
        b'{"__metadata__": {"class_names": "[1]"}}',
    ],
)
@pytest.mark.parametrize("size", [None, 0, 2**40, 2**63, 2**64 - 1])
def test_no_header_of_safetensors_is_a_traceback(
    text: bytes, size: int | None, tmp_path: Path
) -> None:
    content = struct.pack("<Q", len(text) if size is None else size) + text + b"\0"
    (tmp_path / "train.safetensors").write_bytes(content)
    assert outcome(tmp_path / "train.safetensors", tmp_path / "c") is not None


def npy_bytes(header: str, content: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + content


HEADERS = {
    "10 TB": "{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000, 3, 4), }",
    "negative": "{'descr': '<f4', 'fortran_order': False, 'shape': (-6, 3, -4), }",
    "overflow": "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (6,), }",
    "records": "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
    "code": "__import__('os').system('true')",
    "nothing": "",
    "nested": "(" * 3000,
    "bools": "{'descr': '<f4', 'fortran_order': 1, 'shape': (True, True), }",
    "void": "{'descr': '|V0', 'fortran_order': False, 'shape': (6, 3, 4), }",
    "keys": "{'descr': '<f4', 'shape': (6,)}",
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_of_numpy_that_lies(name: str, tmp_path: Path) -> None:
    content = npy_bytes(HEADERS[name], GIVEN["embeddings"].tobytes())
    (tmp_path / "train_X.npy").write_bytes(content)
    assert outcome(tmp_path / "train_X.npy", tmp_path / "c") is not None
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "train.npz", "w", method) as archive:
            archive.writestr("X.npy", content)
            labels_ = io.BytesIO()
            np.save(labels_, GIVEN["labels"])
            archive.writestr("y.npy", labels_.getvalue())
        assert outcome(tmp_path / "train.npz", tmp_path / "c") is not None


def test_an_archive_that_says_more_than_it_holds_takes_no_memory(tmp_path: Path) -> None:
    """A member of 10 TB by its directory and header, of a few bytes in truth."""
    header = npy_bytes("{'descr': '<f4', 'fortran_order': False, 'shape': (208333333333, 3, 4), }")
    claimed = len(header) + 208333333333 * 48
    with zipfile.ZipFile(tmp_path / "train.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header + b"\0" * 2**20)
        ys = io.BytesIO()
        np.save(ys, GIVEN["labels"])
        archive.writestr("y.npy", ys.getvalue())
    content = bytearray((tmp_path / "train.npz").read_bytes())
    extra = struct.pack("<HHQ", 1, 8, claimed)  # ZIP64: the true size lies in the extra field
    at = content.index(b"PK\x01\x02")
    name_length = struct.unpack("<H", content[at + 28 : at + 30])[0]
    content[at + 24 : at + 28] = b"\xff" * 4
    content[at + 30 : at + 32] = struct.pack("<H", len(extra))
    place = at + 46 + name_length
    content[place:place] = extra
    end = content.rindex(b"PK\x05\x06")
    size = struct.unpack("<I", content[end + 12 : end + 16])[0]
    content[end + 12 : end + 16] = struct.pack("<I", size + len(extra))
    (tmp_path / "train.npz").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "train.npz") as archive:
        assert archive.getinfo("X.npy").file_size == claimed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = outcome(tmp_path / "train.npz", tmp_path / "c")
    assert error is not None
    assert "has not one entry per label" in str(error)
    error = None
    with pytest.raises(GaamError):  # its labels are as many as it says
        run(tmp_path / "train.npz", out=tmp_path / "c", unlabelled=("train",))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def zeros_bomb(path: Path, rows: int) -> None:
    """Compressed zeros a thousand times as large as the file."""
    header = npy_bytes(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 1, 1024), }}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("X.npy", "w", force_zip64=True) as member:
            member.write(header)
            for _ in range(rows // 1024):
                member.write(bytes(2**22))
        with archive.open("y.npy", "w") as member:
            np.save(member, np.arange(rows) % 2)


def test_compressed_zeros_take_bounded_memory(tmp_path: Path) -> None:
    zeros_bomb(tmp_path / "train.npz", 64 * 1024)  # a quarter of a gigabyte
    assert (tmp_path / "train.npz").stat().st_size < 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(KeyboardInterrupt):
        stop_after_checking(tmp_path / "train.npz", tmp_path / "c")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def stop_after_checking(file: Path, out: Path) -> None:
    """All of a first reading."""
    from gaam_cache.import_config import ImportConfig
    from gaam_cache.store.importing import import_states

    def report(done: int, total: int, text: str) -> None:
        if done > total * 0.9 or text.startswith("looking"):
            raise KeyboardInterrupt

    import_states(ImportConfig(files=(str(file),), out=out), progress=report)


@pytest.mark.parametrize("how", ["twice", "encrypted", "bzip2", "folder"])
def test_archives_that_numpy_does_not_make(how: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, GIVEN["embeddings"])
    method = zipfile.ZIP_BZIP2 if how == "bzip2" else zipfile.ZIP_STORED
    with zipfile.ZipFile(tmp_path / "train.npz", "w", method) as archive:
        archive.writestr("embeddings.npy", buffer.getvalue())
        if how == "twice":
            with pytest.warns(UserWarning, match="Duplicate"):
                archive.writestr("embeddings.npy", buffer.getvalue())
        if how == "folder":
            archive.writestr("labels.npy/", b"")
    if how == "encrypted":
        content = bytearray((tmp_path / "train.npz").read_bytes())
        for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            content[content.index(sign) + place] |= 1
        (tmp_path / "train.npz").write_bytes(content)
    assert outcome(tmp_path / "train.npz", tmp_path / "c") is not None


@pytest.mark.parametrize(
    "die",
    [
        "os.kill(os.getpid(), 11)",
        "sys.exit(0)",
        "sys.stdout.buffer.write(b'nonsense\\n'); sys.stdout.flush()",
        "print('{\"bytes\": 99999999999999}', flush=True); import time; time.sleep(9)",
        "print('{}', flush=True)",
        "print('{\"bytes\": -1}', flush=True)",
        "print('[]', flush=True)",
    ],
)
def test_a_process_that_dies_or_lies_is_a_refusal(
    die: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that a file crashes takes nothing with it."""
    program = tmp_path / "program.py"
    program.write_text(f"import os, sys\nsys.stdin.readline()\n{die}\n")
    monkeypatch.setattr(hdf5, "_PROGRAM", str(program))
    error = outcome(save(tmp_path / "train.h5", GIVEN), tmp_path / "c")
    assert error is not None
    assert error.exit_code == 3


def test_the_process_that_reads_hdf5_has_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(_hdf5_program.__file__).read_text()
    file = save(tmp_path / "train.h5", GIVEN)
    greedy = source.replace("values = dataset[index]", "bytes(2**31); values = dataset[index]")
    endless = source.replace("PROCESSOR_SECONDS = 60", "PROCESSOR_SECONDS = 1").replace(
        "values = dataset[index]", "while True: pass"
    )
    program = tmp_path / "program.py"
    monkeypatch.setattr(hdf5, "_PROGRAM", str(program))
    for text, said in ((greedy, "MemoryError"), (endless, "not done with it")):
        assert text != source
        program.write_text(text)
        assert said in str(outcome(file, tmp_path / "c"))


def test_a_file_that_is_changed_between_two_readings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaam_cache.store.shard import publish

    def then(change: Callable[[], None]) -> None:
        look_at = publish.look_at

        def look_and_change(*arguments: Any) -> Any:
            found = look_at(*arguments)
            change()
            return found

        monkeypatch.setattr(publish, "look_at", look_and_change)

    values = GIVEN["embeddings"].copy()
    then(lambda: values.__setitem__((5, 1, 1), 7.0))
    with pytest.raises(GaamError, match="changed while they were read"):
        gaam_cache.write(tmp_path / "a", {"train": (values, labels(6))})
    monkeypatch.undo()
    file = save(tmp_path / "train.npz", GIVEN)
    then(lambda: file.write_bytes(file.read_bytes() + b"\0") and None)
    with pytest.raises(GaamError, match="changed while they were read"):
        run(file, out=tmp_path / "b")
    for out in ("a", "b"):
        assert not list(
            (tmp_path / out / "shards").glob("*.json") if (tmp_path / out).exists() else []
        )
