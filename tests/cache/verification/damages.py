"""What can happen to one file of a cache."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

FILES = {
    "plan": ("cache.json", "../other/cache.json"),
    "receipt": ("shards/train-00000.json", "shards/train-00001.json"),
    "shard": ("shards/train-00000-*.h5", "shards/train-00001-*.h5"),
}
"""Of each kind one, and its neighbour."""


@dataclass(frozen=True)
class Damage:
    """Something that happens to a file."""

    name: str
    happen: Callable[[Path, Path | None], None]

    def strike(self, cache: Path, memory: Path, kind: str) -> bool:
        """Let it happen to the file of that kind; False where there is none (any more)."""
        if kind == "memory":
            file, neighbour = memory, None
        else:
            of_kind = [next(cache.glob(pattern), None) for pattern in FILES[kind]]
            file, neighbour = of_kind[0] or cache / "nothing", of_kind[1]
        if not file.is_file() or file.is_symlink():
            return False
        if self.name.startswith("swapped") and neighbour is None:
            return False
        self.happen(file, neighbour)
        return True


def _flip(share: float, bit: int) -> Callable[[Path, Path | None], None]:
    def happen(file: Path, neighbour: Path | None) -> None:
        content = bytearray(file.read_bytes())
        content[int(share * len(content))] ^= 1 << bit
        file.write_bytes(content)

    return happen


def _cut(share: float) -> Callable[[Path, Path | None], None]:
    def happen(file: Path, neighbour: Path | None) -> None:
        size = file.stat().st_size
        os.truncate(file, min(int(share * size), size - 1))

    return happen


def _append(tail: bytes) -> Callable[[Path, Path | None], None]:
    def happen(file: Path, neighbour: Path | None) -> None:
        with file.open("ab") as stream:
            stream.write(tail)

    return happen


def _link(file: Path, neighbour: Path | None) -> None:
    elsewhere = file.parent.parent / f"elsewhere-{file.name}"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


def _dangling(file: Path, neighbour: Path | None) -> None:
    file.unlink()
    file.symlink_to("/nowhere/at/all")


def _device(file: Path, neighbour: Path | None) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def _folder(file: Path, neighbour: Path | None) -> None:
    file.unlink()
    file.mkdir()


def _pipe(file: Path, neighbour: Path | None) -> None:
    file.unlink()
    os.mkfifo(file)


def _swap(file: Path, neighbour: Path | None) -> None:
    assert neighbour is not None
    between = file.with_name("between")
    file.rename(between)
    neighbour.rename(file)
    between.rename(neighbour)


def _copy_over(file: Path, neighbour: Path | None) -> None:
    assert neighbour is not None
    file.write_bytes(neighbour.read_bytes())


def DAMAGES(positions: int) -> Iterator[Damage]:  # noqa: N802 a table that depends on a number
    """Every damage; bits are flipped at so many places, from the first byte to the last."""
    generator = random.Random(positions)
    for number in range(positions):
        share = (number + generator.random()) / positions
        yield Damage(f"bit flipped at {share:.4f}", _flip(share, generator.randrange(8)))
    yield Damage("first bit flipped", _flip(0, 0))
    for share in (0.0, 0.01, 0.5, 1.0):
        yield Damage(f"truncated to {share:.0%}", _cut(share))
    yield Damage("blank appended", _append(b" "))
    yield Damage("zeros appended", _append(bytes(4096)))
    yield Damage("gone", lambda file, neighbour: file.unlink())
    yield Damage("a folder", _folder)
    yield Damage("a link", _link)
    yield Damage("a link to nothing", _dangling)
    yield Damage("a device", _device)
    yield Damage("a pipe", _pipe)
    yield Damage("swapped", _swap)
    yield Damage("swapped for a copy of the neighbour", _copy_over)
