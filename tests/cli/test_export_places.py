"""``gaam export``: neither into what is exported nor to a name that no repository has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.exporting import command
from tests.conftest import GOLDEN, Outcome

Gaam = Callable[..., Outcome]
RUN = "runs/gaam-linear-1f50a817-s0-1"
NO_NAMES = [
    *("name", "a/b/c", "a b/c", "a/b c", "/name", "user/", "/", "./x", "../x", "~/x", "user/-x"),
    *("user/x.git", "user/a..b", "user/a--b", "user/" + "x" * 100, "us er/x", "user\\x/y"),
    *("https://hub/user", "user/\u00e4", "user/x\u202e"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    Path("to-run").symlink_to(RUN)
    Path("to-cache").symlink_to("cache")
    return tmp_path / "here"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(("source", "link"), [(RUN, "to-run"), ("cache", "to-cache")])
def test_nothing_is_exported_into_itself(source: str, link: str, gaam: Gaam, here: Path) -> None:
    before = files(here)
    for name in (source, link, str(here / source)):
        for place in (
            "",
            "/sub",
            "/a/b",
            "/",
            "/../" + Path(source).name + "/sub",
            "/..",
            "/sub/..",
        ):
            for start in (source, link, str(here / source), f"./{link}", f"runs/../{source}"):
                outcome = gaam("export", name, start + place, "--overwrite", "-q")
                assert (outcome.code, outcome.out) == (2, ""), (name, start + place)
                assert "into itself" in outcome.err, outcome.err
    assert files(here) == before


@pytest.mark.parametrize("source", [RUN, "cache", "no-such"])
@pytest.mark.parametrize("yes", [[], ["--yes"]])
def test_a_name_that_no_repository_has_is_refused_at_once(
    source: str, yes: list[str], gaam: Gaam, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was done before")

    monkeypatch.setattr(command, "look", asked)
    monkeypatch.setattr(command, "can_ask", asked)
    before = files(here)
    for name in NO_NAMES:
        outcome = gaam("export", source, "out", "--push", name, *yes)
        assert (outcome.code, outcome.out) == (2, ""), name
        assert "--push names no repository" in outcome.err
        for part in ("expected: USER/NAME", "found:", "where:", "to do:"):
            assert part in outcome.err
    assert files(here) == before
    with pytest.raises(AssertionError, match="something was done before"):
        gaam("export", source, "out", "--push", "user/name-1.0_x", *yes)
