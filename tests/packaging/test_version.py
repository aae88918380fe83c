"""The version is the same wherever a person reads it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import gaam_cache

ROOT = Path(__file__).parents[2]


def test_citation_and_changelog_have_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    release = re.search(r"^## \[(\d[\d.]*)\] - (\S+)$", changelog, re.M)
    assert release is not None
    assert citation["version"] == release[1] == gaam_cache.__version__
    assert str(citation["date-released"]) == release[2]
