"""A slip in what is recorded is said with its place."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.errors import CacheError
from gaam_decoder.studying import read_study
from gaam_decoder.studying.checking import compare
from gaam_decoder.studying.record import check_record, recorded
from tests.decoder.studying.test_checking import TOLERANCES, put, results
from tests.decoder.studying.tiny_study import Gaam, written

FILE = Path("recorded") / "results.json"
SLIPS: list[Any] = ["0.8l", "", "NaN", True, [], [0.8], {}, {"mean": "x"}, [{}], None]
SLIPS += [math.nan, math.inf, 10**400, 7]


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything, whole objects and lists too."""
    if path:
        yield path
    keys: Any = value if isinstance(value, dict) else ()
    for key in range(len(value)) if isinstance(value, list) else keys:
        yield from parts(value[key], (*path, key))


def refused(values: dict[str, Any]) -> CacheError | None:
    try:
        check_record(values, FILE)
    except CacheError as error:
        return error
    return None


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: repr(slip)[:20])
def test_a_slip_in_what_is_recorded_is_said_with_its_place(slip: Any) -> None:
    """Refused by file, report, table, row and field; or it is a difference, which names the row."""
    for path in parts(results()):
        changed = put(results(), path, slip)
        if (error := refused(changed)) is None:
            try:
                compare(changed, results(), TOLERANCES)
            except CacheError as of_pairs:
                said = f"{of_pairs.message} {of_pairs.details.get('found')}"
                assert "other states" in said or "stands twice" in said, path  # with their names
            continue
        where = error.details["where"]
        names = [key for key in path if isinstance(key, str)]
        assert where.startswith(str(FILE))
        assert len(path) == 1 or any(name in f"{error.message} {where}" for name in names)
        if path[0] == "reports" and len(path) > 2:
            assert f"report '{path[1]}'" in f"{error.message} {where}" or len(path) == 3
        if "rows" in path[:-1] and len(path) > 5:
            assert f"report '{path[1]}', table {path[2] + 1}, row {path[4] + 1} (" in where
            assert path[5] in f"{error.message} {where}"


@pytest.mark.parametrize("cut", ["0.8.2", "0,82", "0.82 0.83", "O.82", "'0.82'"])
def test_a_slip_that_is_no_json_is_said_with_its_line(cut: str, tmp_path: Path) -> None:
    study = read_study(written(tmp_path))
    file = study.folder / "results.json"
    text = json.dumps(results(), indent=1).replace('"mean": 0.82', f'"mean": {cut}', 1)
    file.write_text(text)
    with pytest.raises(CacheError, match="cannot be read") as unread:
        recorded(study)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if cut in line]
    after = lines[0] + 1  # a comma goes on to the next
    assert unread.value.details["where"] in [f"{file}, line {n}" for n in (lines[0], after)]


def test_a_slip_is_said_before_anything_runs(
    here: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("gaam_decoder.studying.outcome.run", never)
    path = here / "tiny" / "results.json"
    values = json.loads(path.read_text())
    values["reports"]["both"][0]["rows"][1]["accuracy"]["mean"] = "0.8l"
    path.write_text(json.dumps(values))
    said = gaam("study", "tiny", "--check")
    assert said.code == 3
    for part in (str(path), "report 'both', table 1, row 2 (", "accuracy", "'mean'", "'0.8l'"):
        assert part in said.err, part
