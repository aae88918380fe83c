"""Rows that are handed over one by one: what is wrong with one is said of it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._given import given_inputs

pytestmark = pytest.mark.usefixtures("fake_media")
CONTENTS = {"tone": b"TONEabcdef", "blot": b"BLOTabcdef"}


def test_a_file_of_another_kind_is_told_by_what_is_expected_and_found(tmp_path: Path) -> None:
    for kind, content in CONTENTS.items():
        (tmp_path / kind).write_bytes(content)
    for kind in CONTENTS:
        for found in CONTENTS:
            for before in range(3):
                rows = [str(tmp_path / kind)] * before + [str(tmp_path / found)]
                places = [f"line {3 * number}" for number in range(1, before + 2)]
                config = ExtractConfig()
                if found == kind:
                    assert len(given_inputs(rows, kind, config, origin="x", places=places)) > before
                    continue
                with pytest.raises(DataError) as caught:
                    given_inputs(rows, kind, config, origin="in.csv", places=places)
                said = caught.value.details
                assert kind in said["expected"]
                assert found in said["found"]
                assert said["where"] == f"in.csv, {places[-1]}"
                assert "first" not in str(caught.value)
