"""What was checked is remembered: it saves time, and no damage to it makes a wrong number right."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gaam_cache.reading import check_memory, shard_reader

import gaam_cache
from gaam_cache.errors import CacheError
from gaam_cache.store.plan import read_plan
from gaam_cache.store.read import CheckMemory, Identity, memory_path
from gaam_cache.store.shard import read_receipt
from tests.cache.published import write_random_cache

SEES_STORES = check_memory.sees_stores


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One shard; its files count as old."""
    write_random_cache(tmp_path / "cache", 8, 2, 4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(check_memory, "RACY_NANOSECONDS", -(10**12))
    monkeypatch.setattr(check_memory, "sees_stores", lambda device: True)  # whatever they lie on
    return tmp_path / "cache"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the shards whose bytes were read to check them."""
    checked: list[str] = []
    check = shard_reader.shard_fault

    def counted(file, plan, shard, receipt):  # noqa: ANN001, ANN202
        checked.append(shard.name)
        return check(file, plan, shard, receipt)

    monkeypatch.setattr(shard_reader, "shard_fault", counted)
    return checked


def read(cache: Path) -> int:
    return int(gaam_cache.open_cache(cache)["train"].labels.sum())


def test_only_the_first_reading_checks(cache: Path, checks: list[str]) -> None:
    split = gaam_cache.open_cache(cache)["train"]
    assert checks == []  # opening reads no shard
    split.labels, split.embeddings[:], split.num_tokens  # noqa: B018
    assert checks == ["train-00000"]
    assert read(cache) == 4
    assert checks == ["train-00000"]


def test_verify_remembers_and_trusts_nothing(cache: Path, checks: list[str]) -> None:
    assert gaam_cache.verify(cache).good
    read(cache)
    assert checks == []
    path = next((cache / "shards").glob("*.h5"))
    content = path.read_bytes()
    real = Identity.of
    held = real(path.stat())
    path.write_bytes(content[:-1] + b"\xff")
    # a disk that changes bytes behind the file system's back: no time changes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Identity, "of", classmethod(lambda cls, status: held))
        assert read(cache) == 4
        assert not gaam_cache.verify(cache).good


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes()),
        lambda path: path.rename(path.with_name("x")).rename(path),
        lambda path: os.utime(path, ns=(1, 1)),
        lambda path: path.chmod(0o600),
        lambda path: (
            [path.with_name("x").write_bytes(path.read_bytes()), path.unlink()]
            and path.with_name("x").rename(path)
        ),
    ],
)
def test_whatever_happened_to_the_file_it_is_checked_again(
    change: Callable[[Path], object], cache: Path, checks: list[str]
) -> None:
    read(cache)
    change(next((cache / "shards").glob("*.h5")))
    assert read(cache) == 4
    assert len(checks) == 2


def test_a_store_into_a_page_that_was_changed_before_the_check_is_seen(
    cache: Path,
) -> None:
    if not SEES_STORES((cache / "cache.json").stat().st_dev):
        pytest.skip("no store is seen on this file system, so nothing is remembered")
    path = next((cache / "shards").glob("*.h5"))
    receipt = read_receipt(cache, "train-00000")
    place = receipt.datasets["embeddings"].offset
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[place] = mapped[place]  # the page is now one that was changed
        assert read(cache) == 4
        time.sleep(0.05)  # a tick of the file system's clock
        mapped[place] ^= 1
        with pytest.raises(CacheError, match="was changed"):
            gaam_cache.open_cache(cache)["train"].embeddings[:]
        mapped[place] ^= 1
        opened = gaam_cache.open_cache(cache)["train"]
        assert read(cache) == opened.labels.sum()
        time.sleep(0.05)
        mapped[place] ^= 1
        with pytest.raises(CacheError, match="was changed"):  # also between two looks of one reader
            opened.embeddings[:]


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs", "ext4", "nfs4", "overlay"])
def test_nothing_is_remembered_where_no_store_is_seen(
    kind: str, cache: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = (cache / "shards").stat().st_dev
    mounts = tmp_path / "mountinfo"
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts.write_text(
        f"24 1 0:1 / /proc rw shared:1 - proc proc rw\n25 1 {number} / / rw - {kind} x rw\n"
    )
    monkeypatch.setattr(check_memory, "MOUNTS", mounts)
    monkeypatch.setattr(check_memory, "sees_stores", SEES_STORES.__wrapped__)
    for _ in range(2):
        read(cache)
    assert len(checks) == (2 if kind in ("tmpfs", "ramfs") else 1)


def test_a_file_that_has_just_changed_is_not_remembered(
    cache: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_memory, "RACY_NANOSECONDS", 10**15)
    for _ in range(2):
        read(cache)
    assert len(checks) == 2
    assert not (memory_path() or cache).exists()
    later = time.time_ns() + 10**12  # by a clock that is ahead
    os.utime(next((cache / "shards").glob("*.h5")), ns=(later, later))
    monkeypatch.setattr(check_memory, "RACY_NANOSECONDS", 0)
    for _ in range(2):
        read(cache)
    assert len(checks) == 4


@pytest.mark.parametrize("what", ["no home", "a relative home", "a file above", "a pipe", "a link"])
def test_where_nothing_can_be_remembered_all_works(
    what: str, cache: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    user = tmp_path / "user"
    if what.endswith("home"):
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("HOME", raising=False)
        if what == "a relative home":
            monkeypatch.setenv("HOME", "somewhere")
    elif what == "a file above":
        user.write_text("")
    else:
        (user / "gaam").mkdir(parents=True)
        path = user / "gaam" / check_memory.MEMORY_FILE
        os.mkfifo(path) if what == "a pipe" else path.symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        assert read(cache) == 4
    assert len(checks) == 2
    assert not (tmp_path / "elsewhere").exists()


def test_every_flipped_bit_of_the_memory_costs_time_alone(cache: Path, checks: list[str]) -> None:
    read(cache)
    path = memory_path()
    assert path is not None
    content = path.read_bytes()
    other = next((cache / "shards").glob("*.h5"))
    for place in range(len(content)):
        for bit in (0, 5):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            assert read(cache) == 4
    other.write_bytes(other.read_bytes()[:-1] + b"\xff")
    path.write_bytes(b"\n".join(bytes([x]) * 64 for x in b"0123456789abcdef") * 2)
    with pytest.raises(CacheError, match="was changed"):
        read(cache)
    assert len(checks) > 100


def test_several_processes_add_and_a_torn_line_costs_itself(cache: Path) -> None:
    plan, receipt = read_plan(cache), read_receipt(cache, "train-00000")

    def add(number: int) -> None:
        memory = CheckMemory()
        for place in range(20):
            memory.add(Identity(number, place, 1, 1, 1), receipt, plan)
        memory.save()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(20)))
    path = memory_path()
    assert path is not None
    with path.open("ab") as file:
        file.write(b"0123abc")  # cut off by a full disk
    add(99)
    memory = CheckMemory()
    for number in (*range(20), 99):
        for place in range(20):
            assert memory.knows(Identity(number, place, 1, 1, 1), receipt, plan)
    assert not memory.knows(Identity(98, 0, 1, 1, 1), receipt, plan)


def test_the_memory_is_bounded_and_forgets_the_oldest(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_memory, "MAX_BYTES", 65 * 40)
    plan, receipt = read_plan(cache), read_receipt(cache, "train-00000")
    path = memory_path()
    assert path is not None
    for number in range(200):
        memory = CheckMemory()
        memory.add(Identity(number, 1, 1, 1, 1), receipt, plan)
        memory.save()
        assert path.stat().st_size <= 65 * 40
        assert CheckMemory().knows(Identity(number, 1, 1, 1, 1), receipt, plan)
    known = [CheckMemory().knows(Identity(n, 1, 1, 1, 1), receipt, plan) for n in range(200)]
    assert not any(known[:100])
    assert sum(known) >= 15


def test_files_of_a_cache_have_the_mode_that_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_random_cache(tmp_path / "cache", 2, 1, 1)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "cache").rglob("*.*")}
    assert modes == {0o640}
