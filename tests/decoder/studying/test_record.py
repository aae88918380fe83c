"""What is recorded is what a study wrote, or is refused before anything runs."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.errors import CacheError
from gaam_decoder.studying import Study, read_study
from gaam_decoder.studying.record import DIGEST, RESULTS, digest, recorded
from tests.decoder.studying.test_checking import OURS, put, results
from tests.decoder.studying.tiny_study import Gaam, written

SLIPS: list[Any] = ["0.8l", "", "NaN", True, [], [0.8], {}, {"mean": "x"}, [{}], None, 7, 1.0]


def kept(values: dict[str, Any]) -> dict[str, Any]:
    """As a study writes it."""
    return {**values, DIGEST: digest(values)}


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything, whole objects and lists too."""
    if path:
        yield path
    keys: Any = value if isinstance(value, dict) else ()
    for key in range(len(value)) if isinstance(value, list) else keys:
        yield from parts(value[key], (*path, key))


def without(value: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(value)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return changed


@pytest.fixture
def written_study(tmp_path: Path) -> Study:
    return read_study(written(tmp_path))


def refused(text: str, study: Study) -> str:
    file = study.folder / RESULTS
    file.write_text(text)
    with pytest.raises(CacheError) as error:
        recorded(study)
    assert str(file) in error.value.details["where"]
    return str(error.value)


def test_as_it_was_written_it_is_read_however_it_is_laid_out(written_study: Study) -> None:
    values = kept(results())
    for layout in ({}, {"indent": 1}, {"indent": 7, "sort_keys": True}, {"ensure_ascii": False}):
        (written_study.folder / RESULTS).write_text(json.dumps(values, **layout))
        assert recorded(written_study) == values


def test_whatever_is_changed_is_refused(written_study: Study) -> None:
    values = kept(results())
    for path in parts(values):
        was = values
        for key in path:
            was = was[key]
        for slip in SLIPS:
            if json.dumps(slip) != json.dumps(was):
                refused(json.dumps(put(values, path, slip)), written_study)
        refused(json.dumps(without(values, path)), written_study)


def test_a_name_that_stands_twice_is_refused(written_study: Study) -> None:
    text = json.dumps(kept(results()), indent=1)
    for found in re.finditer(r'^ +("\w+": [^\[{\n]+?),?$', text, re.MULTILINE):
        twice = f"{text[: found.end(1)]}, {found[1]}{text[found.end(1) :]}"
        assert "stands twice" in refused(twice, written_study)


@pytest.mark.parametrize(
    "junk", ["", "3", "[]", "null", '"x"', "{}", '{"reports": {}}', '{"a": 1e999}', "[" * 99999]
)
def test_what_no_study_wrote_is_one_message(junk: str, written_study: Study) -> None:
    refused(junk, written_study)


@pytest.mark.parametrize("folder", OURS, ids=lambda folder: folder.name)
def test_ours_are_as_they_were_written(folder: Path) -> None:
    found = recorded(read_study(folder))
    assert found["reports"]
    assert set(found["files"]) == {path.name for path in folder.iterdir()} - {
        "study.toml", "results.json"}  # fmt: skip


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
    path = here / "tiny" / RESULTS
    values = json.loads(path.read_text())
    values["reports"]["both"][0]["rows"][1]["accuracy"]["mean"] += 1e-9
    path.write_text(json.dumps(values))
    said = gaam("study", "tiny", "--check")
    assert said.code == 3
    for part in (str(path), "not as a study wrote", "record it anew"):
        assert part in said.err, part
