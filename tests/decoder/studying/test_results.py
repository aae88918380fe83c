"""What is written of a study."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from gaam_cache.cache import open_cache


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


def test_a_page_has_the_checklist_once(here: Path) -> None:
    page = (here / "tiny/README.md").read_text()
    assert page.count("Checklist of experiments") == 1
    of_all = [line for line in page.splitlines() if line.startswith("| licences |")]
    assert len(of_all) == len(set(of_all)) == 3
    claims = [line for line in page.splitlines() if line.startswith("| claims |")]
    assert any("Both, table 1" in line for line in claims)
    assert any("Both, table 2" in line for line in claims)
    assert all("One" in line or "Both" in line for line in claims)
