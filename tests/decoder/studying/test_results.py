"""What is written of a study."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from gaam_cache.cache import open_cache
from gaam_cache.messages import plain
from gaam_decoder.reports.notes.claims import LEAD
from tests.decoder.studying.tiny_study import RECORDED, study, written


def test_machine_and_every_cache_are_recorded(here: Path) -> None:
    recorded = json.loads((here / "tiny/results.json").read_text())
    (machine,) = recorded["machines"]
    assert machine["cpu"]
    assert (machine["cpus"], machine["device"]) == (os.cpu_count(), "cpu")
    assert machine["torch"] == torch.__version__
    caches = {
        path.name: open_cache(path).fingerprint for path in (here / "studies/caches").iterdir()
    }
    assert recorded["caches"] == caches


def test_a_page_begins_with_what_one_may_conclude_of_every_report(here: Path) -> None:
    page = (here / "tiny/README.md").read_text()
    results = json.loads((here / "tiny/results.json").read_text())
    first = page[: page.index("## Commands")]
    for title, tables in zip(("Both", "One"), results["reports"].values(), strict=True):
        for number, table in enumerate(tables, 1):
            said = f"{title}, table {number}" if len(tables) > 1 else title
            assert f"- {plain(said)}: {plain(table['conclusion'].removeprefix(LEAD))}" in first


def test_details_of_a_section_wait_and_its_first_line_does_not(here: Path) -> None:
    page = (here / "tiny/README.md").read_text()
    assert page.count("<details>") == page.count("</details>") > 0
    for part in page.split("<details>")[1:]:
        inside, _, after = part.partition("</details>")
        assert inside.startswith("<summary>more of it</summary>\n\n")
        assert "What one may conclude" not in inside
        assert after.startswith("\n")


@pytest.mark.parametrize("name", [*RECORDED, "README.md"])
def test_where_nothing_can_be_recorded_is_said_before_anything_runs(
    name: str, tmp_path: Path
) -> None:
    (written(tmp_path) / name).mkdir()
    said = study(tmp_path, "--record")
    assert said.returncode == 2
    assert name in said.stderr
    assert not (tmp_path / "studies").exists()
