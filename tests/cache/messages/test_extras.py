"""What a person is told to type installs the part that is missing."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from gaam_cache.bundle import data_path
from gaam_cache.messages import install

CHECKOUT = data_path().parent
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_checkout_installs_itself_and_a_package_is_fetched(extra: str, tmp_path: Path) -> None:
    root = tmp_path / "a folder"
    root.mkdir()
    assert install(extra, root) == f"pip install 'gaam[{extra}]'"
    (root / "pyproject.toml").touch()
    assert shlex.split(install(extra, root)) == ["pip", "install", "-e", f"{root}[{extra}]"]
    (root / "constraints.txt").touch()
    words = shlex.split(install(extra, root))
    assert words[2:] == ["-c", f"{root}/constraints.txt", "-e", f"{root}[{extra}]"]
    assert str(CHECKOUT) in install(extra)
