"""Writing to a hub: what is said before, what is there afterwards, and every refusal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub
import pytest

from gaam_cache.errors import ConfigError, GaamError, HubError
from gaam_cache.exporting.export import export_cache
from gaam_cache.hub.push import Destination, look
from tests.cache.hub.hub_server import Fault, Request, folder_content
from tests.cache.hub.hub_writes import GIT_ATTRIBUTES, WritableHub

NAME = "someone/states"
HEAD = {".gitattributes": GIT_ATTRIBUTES}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[WritableHub]:
    """A hub that this process talks to, as somebody who may write there."""
    with WritableHub() as hub:
        hub.is_spoken_to(monkeypatch)
        yield hub


@pytest.fixture(scope="module")
def folder(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported cache."""
    out = tmp_path_factory.mktemp("exported") / "cache"
    export_cache(tiny_cache, out)
    return out


def content(hub: WritableHub, name: str = NAME) -> dict[str, bytes]:
    repository = hub.datasets[name]
    return repository.commits[repository.branches["main"]]


@pytest.mark.parametrize("private", [False, True])
def test_what_is_pushed_is_the_folder_byte_for_byte(
    private: bool, hub: WritableHub, folder: Path
) -> None:
    there = look(NAME, kind="dataset", private=private)
    said = there.in_words(folder)
    files = folder_content(folder)
    for words in (f"{len(files)} files", f"{sum(map(len, files.values())):,} bytes", "as "):
        assert words in said
    assert ("private" in said, "PUBLIC" in said) == (private, not private)
    assert hub.endpoint in said
    assert "someone" in said
    writes = {request.method for request in hub.requests} - {"GET", "HEAD"}
    assert not writes, "nothing is sent before it is asked for"
    assert NAME not in hub.datasets
    assert there.send(folder) == f"{hub.endpoint}/datasets/{NAME}"
    assert content(hub) == HEAD | files
    assert hub.datasets[NAME].private == private


def test_an_earlier_export_is_replaced_when_told_to(
    hub: WritableHub, folder: Path, tmp_path: Path
) -> None:
    look(NAME, kind="dataset").send(folder)
    with pytest.raises(ConfigError, match="exists") as refused:
        look(NAME, kind="dataset")
    assert "--overwrite" in str(refused.value)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("cache.json", "README.md", "FORMAT.md"):
        (other / name).write_bytes((folder / name).read_bytes() + b"\n")
    look(NAME, kind="dataset", overwrite=True).send(other)
    assert content(hub) == HEAD | folder_content(other), "what is no longer there is gone"
    hub.datasets[NAME].commit(content(hub) | {"mine.txt": b"!"})
    with pytest.raises(ConfigError, match=r"exists") as refused:
        look(NAME, kind="dataset", overwrite=True)
    assert "mine.txt" in str(refused.value)


def test_an_empty_repository_is_filled_and_a_public_one_never_called_private(
    hub: WritableHub, folder: Path
) -> None:
    huggingface_hub.HfApi().create_repo(NAME, repo_type="dataset")
    with pytest.raises(ConfigError, match="is public"):
        look(NAME, kind="dataset", private=True)
    look(NAME, kind="dataset").send(folder)
    assert content(hub) == HEAD | folder_content(folder)


def test_what_others_committed_meanwhile_is_not_lost(
    hub: WritableHub, folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(folder, tmp_path / "copy")
    look(NAME, kind="dataset").send(folder)
    there = look(NAME, kind="dataset", overwrite=True)
    theirs = content(hub) | {"README.md": b"---\na: b\n---\n"}
    hub.datasets[NAME].commit(theirs)
    (folder / "README.md").write_bytes((folder / "README.md").read_bytes() + b"\n")
    with pytest.raises(HubError, match="meanwhile"):
        there.send(folder)
    assert content(hub) == theirs


TOKENS: dict[str, tuple[str, type[GaamError], str]] = {
    "": (NAME, HubError, "no token"),
    "wrong": (NAME, HubError, "does not know HF_TOKEN"),
    "token-of-someone": ("states", ConfigError, "names no repository"),
}


@pytest.mark.parametrize("token", TOKENS)
def test_who_may_not_write_is_told_so_before_anything_is_sent(
    token: str, hub: WritableHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    name, kind, said = TOKENS[token]
    with pytest.raises(kind, match=said):
        look(name, kind="dataset")
    assert not hub.datasets


@pytest.mark.parametrize("name", ["a b/c", "someone/-x", "someone/" + 200 * "x"])
def test_what_is_no_name_of_a_repository_is_refused(name: str, hub: WritableHub) -> None:
    with pytest.raises(ConfigError, match="names no repository"):
        look(name, kind="dataset")


def test_without_permission_there_is_one_message(hub: WritableHub, folder: Path) -> None:
    with pytest.raises(HubError, match="no permission") as refused:
        look("others/states", kind="dataset").send(folder)
    assert "rights to write to others" in str(refused.value)
    assert not hub.datasets


def steps(hub: WritableHub, there: Destination, folder: Path) -> list[tuple[str, str]]:
    """Requests of a push that goes well."""
    hub.requests.clear()
    there.send(folder)
    return [(one.method, one.path) for one in hub.requests]


@pytest.mark.parametrize("how", ["cut", 500, 403, 401])
def test_whatever_breaks_nothing_is_half_committed(
    how: str | int, hub: WritableHub, folder: Path
) -> None:
    """Every request of a push fails once, for good."""
    asked = steps(hub, look(NAME, kind="dataset"), folder)
    kinds = {(method, _kind(path)) for method, path in asked}
    assert {("POST", "create"), ("POST", "preupload"), ("POST", "batch")} <= kinds
    assert {("PUT", "store"), ("POST", "commit")} <= kinds
    whole = content(hub)
    writes = sorted(kind for kind in kinds if kind[0] not in ("GET", "HEAD"))
    for number, broken in enumerate(writes):
        name = f"someone/states{number}"
        hub.uploaded.clear()
        there = look(name, kind="dataset")
        fault = Fault(cut_at=0) if how == "cut" else Fault(status=int(how))
        hub.fault = _breaking(broken, fault)
        with pytest.raises(HubError) as refused:
            there.send(folder)
        assert "no file was committed" in str(refused.value)
        hub.fault = lambda request: None
        assert name not in hub.datasets or content(hub, name) == HEAD
        look(name, kind="dataset").send(folder)
        assert content(hub, name) == whole, "the same again goes on"


def _kind(path: str) -> str:
    for word in ("store", "create", "validate", "preupload", "batch", "commit"):
        if word in path:
            return word
    return path


def _breaking(what: tuple[str, str], fault: Fault) -> Callable[[Request], Fault | None]:
    return lambda request: fault if (request.method, _kind(request.path)) == what else None
