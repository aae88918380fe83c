"""Hostile HDF5 files whose receipts agree: refused with a reason, in little memory and time."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import gaam_cache
from gaam_cache.cache import EmbeddingCache
from gaam_cache.config import ExtractConfig
from gaam_cache.format.layout import expected_arrays, shard_attributes
from gaam_cache.format.receipt import NUMPY_DTYPES, read_receipt
from gaam_cache.verification import inspector, strict_hdf5
from gaam_cache.verification.inspector import HDF5File, Inspector
from tests.cache.verification.forgery import replace_shard, run_bounded

Gaam = Callable[..., Any]
PADDING = bytes(64 * 1024)
"""Behind the forged file, so that offsets of arrays that lie elsewhere stay within it."""

pytestmark = pytest.mark.usefixtures("own_readers")


@pytest.fixture(scope="session")
def made(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> ExtractConfig:
    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        splits=("train",),
        limit=20,
        out=tmp_path_factory.mktemp("made") / "cache",
        shard_rows=1,
    )
    gaam_cache.extract(config)
    return config


@pytest.fixture(scope="session")
def opened(made: ExtractConfig) -> EmbeddingCache:
    return gaam_cache.open_cache(made.out)


class Forger:
    """Writes the HDF5 file of a shard as gaam does, but for what is changed."""

    def __init__(self, cache: EmbeddingCache, index: int) -> None:
        self.shard = list(cache.plan.shards())[index]
        self.attributes = shard_attributes(cache.plan, self.shard)
        self.arrays = {
            key: np.ones(shape, NUMPY_DTYPES[dtype])
            for key, (shape, dtype) in expected_arrays(cache.plan, self.shard).items()
        }
        self.arrays["label"][:] = 0
        self.arrays["row"][:] = np.arange(self.shard.start, self.shard.stop)
        self.arrays["num_tokens"][:] = 5
        expected = expected_arrays(cache.plan, self.shard)
        self.types = {key: dtype for key, (_, dtype) in expected.items()}

    def write(
        self, change: Callable[[h5py.File], None], *, without: tuple[str, ...] = (), **options: Any
    ) -> tuple[bytes, dict[str, dict[str, Any]]]:
        """The bytes, and the offsets that a receipt would give."""
        buffer = io.BytesIO()
        with h5py.File(buffer, "w", **options) as file:
            file.attrs.update(self.attributes)
            for key, array in self.arrays.items():
                if key not in without:
                    file.create_dataset(key, data=array).attrs["dtype"] = self.types[key]
            change(file)
            file.flush()
            offsets = {
                key: file[key].id.get_offset()
                for key in file
                if file.get(key, getlink=True).__class__ is h5py.HardLink
                and isinstance(file[key], h5py.Dataset)
            }
        image = buffer.getvalue()
        free = len(image)
        datasets = {}
        for key, array in self.arrays.items():
            offset = offsets.get(key)
            if offset is None or offset in [spec["offset"] for spec in datasets.values()]:
                offset, free = free, free + array.nbytes
            datasets[key] = {
                "offset": offset,
                "shape": list(array.shape),
                "dtype": self.types[key],
            }
        return image + PADDING, datasets


def link_elsewhere(file: h5py.File) -> None:
    file["label"] = h5py.ExternalLink("/etc/passwd", "/label")


def soft_link(file: h5py.File) -> None:
    file["label"] = h5py.SoftLink("/row")


def in_another_file(file: h5py.File) -> None:
    data = file.create_dataset("label", (1,), "<i8", external=[("/etc/passwd", 0, 8)])
    data.attrs["dtype"] = "int64"


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(1,), dtype="<i8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "label", shape=(1,))
    file.create_virtual_dataset("label", layout).attrs["dtype"] = "int64"


def filter_bomb(file: h5py.File) -> None:
    data = file.create_dataset(
        "embeddings", (1, 3, 2**33), "<f2", chunks=(1, 1, 2**27), compression="gzip"
    )
    data[0, 0, 0] = 1.0
    data.attrs["dtype"] = "float16"


def chunked(file: h5py.File) -> None:
    data = np.zeros((1, 3, 32), "<f2")
    file.create_dataset("embeddings", data=data, compression="gzip").attrs["dtype"] = "float16"


def sparse(file: h5py.File) -> None:
    file.create_dataset("embeddings", (1, 3, 2**42), "<f2").attrs["dtype"] = "float16"


def never_written(file: h5py.File) -> None:
    file.create_dataset("embeddings", (1, 3, 32), "<f2").attrs["dtype"] = "float16"


def growing(file: h5py.File) -> None:
    file.create_dataset("label", (1,), "<i8", maxshape=(None,)).attrs["dtype"] = "int64"


def circle(file: h5py.File) -> None:
    group = file.create_group("label")
    group["label"] = file["/"]
    group.create_group("deeper")["up"] = group


def two_names(file: h5py.File) -> None:
    file["label"] = file["row"]


def named_type(file: h5py.File) -> None:
    file["label"] = np.dtype("<i8")


def big_endian(file: h5py.File) -> None:
    file.create_dataset("label", data=np.zeros(1, ">i8")).attrs["dtype"] = "int64"


def strings(file: h5py.File) -> None:
    data = file.create_dataset("label", (1,), h5py.string_dtype())
    data[0] = "x" * 1000
    data.attrs["dtype"] = "int64"


def crowd(file: h5py.File) -> None:
    for number in range(3000):
        file.create_group(f"group{number}")


def one_more(file: h5py.File) -> None:
    file.create_dataset("label2", data=np.zeros(1))


def nothing(file: h5py.File) -> None:
    """As gaam writes it."""


def more_attributes(file: h5py.File) -> None:
    file.attrs["extra"] = 1


def other_attribute(file: h5py.File) -> None:
    file.attrs["fingerprint"] = "0" * 64


def giant_attribute(file: h5py.File) -> None:
    file.attrs["fingerprint"] = np.zeros(8000)


def nested_attribute(file: h5py.File) -> None:
    file["row"].attrs["dtype"] = "int32"


LABEL, STATES = ("label",), ("embeddings",)
HOSTILE: dict[str, tuple[Callable[[h5py.File], None], tuple[str, ...], dict[str, Any], str]] = {
    "external link": (link_elsewhere, LABEL, {}, "'label' is an external link"),
    "soft link": (soft_link, LABEL, {}, "'label' is a soft link"),
    "external storage": (in_another_file, LABEL, {}, "'label' lies in external files"),
    "virtual": (virtual, LABEL, {}, "'label' is virtual, not contiguous"),
    "filter bomb": (filter_bomb, STATES, {}, "'embeddings' is chunked, not contiguous"),
    "filter": (chunked, STATES, {}, "'embeddings' is chunked, not contiguous"),
    "sparse": (sparse, STATES, {}, r"has the shape \(1, 3, 4398046511104\), not \(1, 3, 32\)"),
    "unallocated": (never_written, STATES, {}, "'embeddings' lies at None"),
    "growing": (growing, LABEL, {}, "'label' is chunked"),
    "cycle": (circle, LABEL, {}, "'label' is no data set but a group"),
    "two names": (two_names, LABEL, {}, "has several names"),
    "named type": (named_type, LABEL, {}, "'label' is no data set but a named type"),
    "byte order": (big_endian, LABEL, {}, "'label' is not stored as <i8"),
    "strings": (strings, LABEL, {}, "'label' is not stored as <i8"),
    "crowd": (crowd, (), {}, "3004 objects instead of 4"),
    "one more": (one_more, (), {}, "data sets embeddings, label, label2"),
    "one less": (nothing, LABEL, {}, "data sets embeddings, num_tokens, row instead of"),
    "attributes": (more_attributes, (), {}, "8 attributes at / instead of 7"),
    "attribute": (other_attribute, (), {}, "the attribute 'fingerprint' at / is '0000"),
    "giant attribute": (giant_attribute, (), {}, "the attribute 'fingerprint' at / is not one str"),
    "type attribute": (nested_attribute, (), {}, "the attribute 'dtype' at /row is 'int32'"),
    "user block": (nothing, (), {"userblock_size": 512}, "something lies before the HDF5 file"),
}


@pytest.fixture(scope="session")
def forged(
    made: ExtractConfig, opened: EmbeddingCache, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What ``gaam verify``, in little memory, says about each hostile file."""
    said: dict[str, str] = {}
    cases = list(HOSTILE.items())
    shards = list(opened.plan.shards())
    for start in range(0, len(cases), len(shards)):
        root = tmp_path_factory.mktemp("forged") / "cache"
        shutil.copytree(made.out, root)
        names = {}
        for index, (case, (change, without, options, _)) in enumerate(
            cases[start : start + len(shards)]
        ):
            forger = Forger(opened, index)
            image, datasets = forger.write(change, without=without, **options)
            replace_shard(root, forger.shard.name, image, datasets)
            read_receipt(root, forger.shard.name)  # the receipt alone raises no suspicion
            names[forger.shard.name] = case
        process = run_bounded("verify", root, "--json")
        assert process.returncode == 3, process.stderr
        assert "Traceback" not in process.stderr
        bad = json.loads(process.stdout)["bad"]
        said |= {names[shard["name"]]: shard["reason"] for shard in bad}
    return said


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_for_what_is_wrong_with_it(
    case: str, forged: dict[str, str]
) -> None:
    assert case in forged, "verify found nothing wrong with it"
    assert re.search(HOSTILE[case][3], forged[case]), forged[case]


@pytest.fixture
def cache(made: ExtractConfig, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.out, tmp_path / "cache"))


def reasons(cache: Path) -> list[str]:
    return [bad.reason for bad in gaam_cache.verify(cache).bad]


def test_the_forgers_own_file_is_good_where_nothing_is_forged(
    cache: Path, opened: EmbeddingCache
) -> None:
    forger = Forger(opened, 0)
    image, datasets = forger.write(nothing)
    replace_shard(cache, forger.shard.name, image, datasets)
    assert reasons(cache) == []


def test_offsets_that_are_not_the_files_are_refused(cache: Path, opened: EmbeddingCache) -> None:
    forger = Forger(opened, 0)
    image, datasets = forger.write(nothing)
    datasets["label"], datasets["row"] = datasets["row"], datasets["label"]
    replace_shard(cache, forger.shard.name, image, datasets)
    (reason,) = reasons(cache)
    assert re.match(r"'(label|row)' lies at \d+, the receipt says \d+", reason)


@pytest.mark.parametrize("what", ["superblock", "empty", "text", "half"])
def test_what_is_no_hdf5_file_is_refused(what: str, cache: Path, opened: EmbeddingCache) -> None:
    forger = Forger(opened, 0)
    image, datasets = forger.write(nothing)
    forgeries = {
        "superblock": bytes(8) + image[8:],
        "empty": bytes(len(image)),
        "text": b"label,text\n" * (len(image) // 11),
        "half": image[:600] + bytes(len(image) - 600),
    }
    replace_shard(cache, forger.shard.name, forgeries[what], datasets)
    (reason,) = reasons(cache)
    assert reason.startswith("not a readable HDF5 file")


def test_a_file_that_sends_the_library_round_in_circles_is_ended(
    cache: Path, opened: EmbeddingCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong size of an object in a global heap: libhdf5 2.0 never finds the end of the heap.

    It is ended as it would be, but sooner.
    """
    source = Path(strict_hdf5.__file__).read_text()
    sooner = source.replace("PROCESSOR_SECONDS = 5", "PROCESSOR_SECONDS = 1")
    assert sooner != source
    (tmp_path / "program.py").write_text(sooner)
    monkeypatch.setattr(inspector, "_PROGRAM", str(tmp_path / "program.py"))
    shard = next(opened.plan.shards())
    path = cache / "shards" / read_receipt(cache, shard.name).file
    image = bytearray(path.read_bytes())
    image[image.index(b"gaam-shard") - 8] ^= 0xFF
    replace_shard(cache, shard.name, bytes(image))
    (reason,) = reasons(cache)
    # another version of the library may see what is wrong
    assert reason.startswith(("the HDF5 library is not done with it after 1 s", "not a readable"))


def test_random_damage_never_ends_the_inspector(opened: EmbeddingCache, tmp_path: Path) -> None:
    """Whatever a file does to the library, an answer comes, and the next file is judged alone."""
    shard = next(opened.plan.shards())
    receipt = read_receipt(opened.root, shard.name)
    image = (opened.root / "shards" / receipt.file).read_bytes()
    arrays = {
        name: {
            "offset": spec.offset,
            "shape": list(spec.shape),
            "dtype": spec.dtype,
            "stored": NUMPY_DTYPES[spec.dtype],
        }
        for name, spec in receipt.datasets.items()
    }
    attributes = shard_attributes(opened.plan, shard)
    generator = random.Random(0)
    path = tmp_path / "shard.h5"
    file = HDF5File(str(path), attributes, arrays)
    refused = 0
    with Inspector() as inspector:
        for _ in range(150):
            damaged = bytearray(image)
            for place in generator.sample(range(2048), 20):
                damaged[place] = generator.randrange(256)
            path.write_bytes(damaged)
            refused += inspector.inspect([file]) != [None]
        path.write_bytes(image)
        assert inspector.inspect([file]) == [None]
    assert refused > 100


def test_a_module_in_the_working_folder_is_not_run(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "h5py.py").write_text("open('owned', 'w')")
    (tmp_path / "json.py").write_text("open('owned', 'w')")
    monkeypatch.chdir(tmp_path)
    assert gaam_cache.verify(cache).good
    assert not (tmp_path / "owned").exists()
