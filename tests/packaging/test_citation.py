"""The version stands in one place, and what cites or releases it says the same."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import gaam_cache

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_newest_release_is_this_version_everywhere_and_stands_in_one_file() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["authors"] == [{"name": "The gaam authors"}]
    assert citation["license"] == PROJECT["project"]["license"]
    release = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
    newest = release.findall((ROOT / "CHANGELOG.md").read_text("utf-8"))[0]
    assert (citation["version"], str(citation["date-released"])) == newest
    assert newest[0] == gaam_cache.__version__
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "gaam_cache/__init__.py"


@pytest.mark.parametrize("cwd", [ROOT, ROOT / "tests"])
def test_a_checkout_that_is_not_installed_says_it(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    start = "from gaam_cache.terminal import entry; entry()"
    shown = subprocess.run(
        [sys.executable, "-c", start, "--version"], cwd=cwd, capture_output=True, text=True
    )
    assert (shown.stdout, shown.stderr) == (f"gaam {gaam_cache.__version__}\n", "")
