"""Which shard files were checked before, so that the second training does not pay again.

A set of hashes in the user's cache folder. Each is that of a file's identity to the file system, of
its receipt and of the checks: whatever happens to the set can cost time and never trust, for no
damage makes a hash of a file that was not checked. Who changes a file without the file system's
knowledge (a failing disk) is found by ``gaam verify``, which reads every byte and trusts nothing.

A process that has a file mapped to write to it is seen by the file system when it first stores into
a page, and not again until that page was written to the disk: ``identity_to_remember`` asks for
that. In memory file systems it is never seen, so nothing on them is remembered.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from gaam_cache.format.digest import digest_of
from gaam_cache.format.files import Identity, canonical_json, read_bytes, write_file
from gaam_cache.format.plan import Plan
from gaam_cache.format.receipt import Receipt

CHECKS_VERSION = 2
"""To be raised with every change of what a check asks for."""
RACY_NANOSECONDS = 2 * 10**9
"""A file that changed so recently may change again within a tick of the file system's clock."""
MAX_BYTES = 32 * 2**20
"""Half a million shards; beyond it the older half is forgotten."""
MEMORY_FILE = "checked-shards"
MOUNTS = Path("/proc/self/mountinfo")
BLIND_FILE_SYSTEMS = {b"tmpfs", b"ramfs", b"devtmpfs", b"hugetlbfs"}
"""Nothing is ever written to a disk, so that a store into a mapped page changes no time."""
_HASH = re.compile(rb"[0-9a-f]{64}")


def identity_to_remember(descriptor: int) -> Identity:
    """Who an open file is before it is checked; whatever is stored from now on changes it."""
    identity = Identity.of(os.fstat(descriptor))
    with suppress(OSError):  # a disk that fails is for whoever reads to say
        getattr(os, "fdatasync", os.fsync)(descriptor)
    return identity


@cache
def sees_stores(device: int) -> bool:
    """Whether a store into a mapped page of a file on this device changes the file's times."""
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    try:
        lines = [line.split() for line in MOUNTS.read_bytes().splitlines()]
    except OSError:
        return True  # no Linux
    kinds = {line[line.index(b"-") + 1] for line in lines if line[2] == number}
    return not kinds & BLIND_FILE_SYSTEMS


def memory_path() -> Path | None:
    """The file of the set, or None where there is no folder for it."""
    given, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
    if Path(given).is_absolute():
        return Path(given) / "gaam" / MEMORY_FILE
    return Path(home) / ".cache" / "gaam" / MEMORY_FILE if Path(home).is_absolute() else None


class CheckMemory:
    """The set, read when it is first asked and added to by ``save``. Never raises, never waits."""

    def __init__(self) -> None:
        self._known: set[bytes] | None = None
        self._new: list[bytes] = []

    def knows(self, identity: Identity, receipt: Receipt, plan: Plan) -> bool:
        """Whether just this file was checked by just these checks."""
        if self._known is None:
            self._known = _read(memory_path())
        return _entry(identity, receipt, plan) in self._known

    def add(self, identity: Identity, receipt: Receipt, plan: Plan) -> None:
        """Keep that a file was right; ``identity_to_remember`` was asked before it was read."""
        settled = max(identity.mtime_ns, identity.ctime_ns) < time.time_ns() - RACY_NANOSECONDS
        if settled and sees_stores(identity.device):
            self._new.append(_entry(identity, receipt, plan))

    def save(self) -> None:
        """Write down what was added, if that can be."""
        new, self._new = self._new, []
        path = memory_path()
        if new and path is not None:
            with suppress(OSError, ValueError):
                _append(path, b"".join(entry + b"\n" for entry in new))


def _entry(identity: Identity, receipt: Receipt, plan: Plan) -> bytes:
    about = [CHECKS_VERSION, *identity, receipt.digest, plan.fingerprint]
    return digest_of(canonical_json(about)).encode()


def _read(path: Path | None) -> set[bytes]:
    if path is None:
        return set()
    try:
        lines = read_bytes(path, max_bytes=2 * MAX_BYTES).split(b"\n")
    except (OSError, ValueError):
        return set()
    return {line for line in lines if _HASH.fullmatch(line)}


def _append(path: Path, lines: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return
        if status.st_size + len(lines) <= MAX_BYTES:
            # one write, so that those of several processes lie one behind the other; begun by an
            # end of line, so that what was cut off before costs no more than itself
            os.write(descriptor, b"\n" + lines)
            return
    finally:
        os.close(descriptor)
    kept = read_bytes(path, max_bytes=2 * MAX_BYTES)[-MAX_BYTES // 2 :] if status.st_size else b""
    write_file(path, (kept + b"\n" + lines)[-MAX_BYTES:])
