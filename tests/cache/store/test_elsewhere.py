"""An export lies neither in what is exported nor around it, however that is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaam_cache.errors import ConfigError
from gaam_cache.store.files import check_elsewhere

INSIDE = ["source", "source/sub", "source/a/b", "source/", "./source/sub", "other/../source/sub",
          "link", "link/sub", "link/../source/sub", "up/source/sub", "source/../link/new",
          "source/back", "source/back/new", "other/../link"]  # fmt: skip
AROUND = [".", "..", "up", "source/..", "link/.."]
OUTSIDE = ["new", "other/new", "sources", "source-2", "source/../new", "up/new", "empty", "sourc"]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "here"
    for name in ("source/a", "other", "empty"):
        (place / name).mkdir(parents=True)
    (place / "link").symlink_to("source")
    (place / "up").symlink_to(".")
    (place / "source" / "back").symlink_to("..//source")
    monkeypatch.chdir(place)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("source", ["source", "link", "./source", "up/link", "source/../source"])
def test_every_spelling_is_seen(source: str, whole: bool) -> None:
    def path(text: str) -> Path:
        return Path(os.path.join(os.getcwd(), text)) if whole else Path(text)  # noqa: PTH109, PTH118 ".." stays

    for text in (*INSIDE, *AROUND):
        with pytest.raises(ConfigError, match="into itself") as refused:
            check_elsewhere(path(source), path(text))
        assert set(refused.value.details) == {"expected", "found", "where", "to do"}
    for text in OUTSIDE:
        check_elsewhere(path(source), path(text))


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    with pytest.raises(ConfigError, match="into itself"):
        check_elsewhere(Path("source"), Path("~/source/sub"))
