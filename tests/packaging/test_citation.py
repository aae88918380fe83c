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
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
RELEASES = re.findall(
    r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$",
    (ROOT / "CHANGELOG.md").read_text("utf-8"),
    re.MULTILINE,
)
KEYS_OF_1_2_0 = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi",
    "identifiers", "keywords", "license", "license-url", "message", "preferred-citation",
    "references", "repository", "repository-artifact", "repository-code", "title", "type", "url",
    "version",
}  # fmt: skip
"""Every key that the schema of the Citation File Format 1.2.0 knows at the top."""


def test_the_citation_has_what_the_format_asks_for() -> None:
    assert CITATION["cff-version"] == "1.2.0"
    assert {"authors", "message", "title"} <= CITATION.keys() <= KEYS_OF_1_2_0
    assert CITATION["authors"] == [{"name": "The gaam authors"}]
    for reference in CITATION["references"]:
        assert {"authors", "title", "type"} <= reference.keys()
        assert all(author.keys() for author in reference["authors"])


def test_the_paper_is_the_one_that_the_reports_name() -> None:
    published = (ROOT / "gaam_decoder" / "reports" / "comparisons" / "published.json").read_text(
        "utf-8"
    )
    (paper,) = CITATION["references"]
    names = ", ".join(author["family-names"] for author in paper["authors"])
    assert f"{names} {paper['year']}, arXiv 2401.11143" in published
    assert paper["url"].endswith("/2401.11143")


def test_the_newest_release_is_this_version_everywhere() -> None:
    assert (CITATION["version"], str(CITATION["date-released"])) == RELEASES[0]
    assert RELEASES[0][0] == gaam_cache.__version__
    assert (
        CITATION["license"]
        == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    )


def test_no_other_file_holds_the_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "gaam_cache/__init__.py"
    places = [ROOT / "cli.py", ROOT / "pyproject.toml"]
    places += [
        path for name in ("gaam_cache", "gaam_decoder") for path in (ROOT / name).rglob("*.py")
    ]
    quoted = re.compile(rf"""(?<!==)['"]{re.escape(gaam_cache.__version__)}['"]""")
    assert [path for path in places if quoted.search(path.read_text("utf-8"))] == [
        ROOT / "gaam_cache" / "__init__.py"
    ]


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
