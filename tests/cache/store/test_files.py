from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.store import files as pieces
from gaam_cache.store.digest import digest_of
from gaam_cache.store.files import write_file


@given(parts=st.lists(st.binary(max_size=99)))
def test_a_digest_is_that_of_all_parts_joined(parts: list[bytes]) -> None:
    assert digest_of(*parts) == hashlib.sha256(b"".join(parts)).hexdigest()


def test_what_is_written_in_pieces_is_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "WRITE_BYTES", 64)
    numbers = np.random.default_rng(0)
    for size in [*range(200), 999, 4096]:
        content = numbers.bytes(size)
        wide = np.frombuffer(numbers.bytes(8 * size), np.int64).reshape(-1, 1)
        for parts in (content, [content, wide.data, b"", content]):
            write_file(tmp_path / "a", parts)
            joined = content if parts is content else content + wide.tobytes() + content
            assert (tmp_path / "a").read_bytes() == joined


def test_an_exclusive_file_is_that_of_the_first(tmp_path: Path) -> None:
    assert write_file(tmp_path / "a", b"first", exclusive=True)
    assert not write_file(tmp_path / "a", b"second", exclusive=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a": b"first"}


def test_an_answer_that_got_lost_over_nfs_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def asked_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", asked_twice)
    assert write_file(tmp_path / "a", b"ours", exclusive=True)
    assert not write_file(tmp_path / "a", b"theirs", exclusive=True)
    assert (tmp_path / "a").read_bytes() == b"ours"
