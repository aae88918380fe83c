"""Writing to a hub: the announcement, the files there afterwards, every refusal."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub
import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError, HubError
from gaam_cache.hub.push import check_destination
from tests.cache.hub.hub_server import GIT_ATTRIBUTES, Writable, folder_content

NAME = "someone/states"
HEAD = {".gitattributes": GIT_ATTRIBUTES}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Writable:
    """A hub that this process talks to, as somebody who may write there."""
    return Writable(monkeypatch)


@pytest.fixture(scope="module")
def folder(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "cache"
    gaam_cache.export_cache(tiny_cache, out)
    return out


@pytest.mark.parametrize("private", [False, True])
def test_what_is_pushed_is_the_folder_byte_for_byte(
    private: bool, hub: Writable, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    destination = check_destination(NAME, kind="dataset", private=private)
    address = destination.send(folder, yes=True)
    assert address == f"{hub.endpoint}/datasets/{NAME}"
    announcement = capsys.readouterr().err
    files = folder_content(folder)
    num_bytes = sum(map(len, files.values()))
    assert f"{len(files)} files" in announcement
    assert f"{num_bytes:,} bytes" in announcement
    assert "someone" in announcement
    assert ("private" in announcement) == private
    assert ("PUBLIC" in announcement) == (not private)
    assert hub.content(NAME) == HEAD | files
    assert hub.datasets[NAME].private == private


def test_only_an_earlier_export_is_replaced_and_only_when_told_to(
    hub: Writable, folder: Path, tmp_path: Path
) -> None:
    huggingface_hub.HfApi().create_repo(NAME, repo_type="dataset")
    with pytest.raises(ConfigError, match="--private"):
        check_destination(NAME, kind="dataset", private=True)
    # an empty one is free
    check_destination(NAME, kind="dataset").send(folder, yes=True)
    with pytest.raises(ConfigError, match="--overwrite"):
        check_destination(NAME, kind="dataset")
    other = tmp_path / "other"
    other.mkdir()
    for name in ("cache.json", "README.md", "FORMAT.md"):
        (other / name).write_bytes((folder / name).read_bytes() + b"\n")
    destination = check_destination(NAME, kind="dataset", overwrite=True)
    destination.send(other, yes=True)
    # files that the folder lacks are gone
    assert hub.content(NAME) == HEAD | folder_content(other)
    # somebody has committed since the destination was checked
    with pytest.raises(HubError):
        destination.send(folder, yes=True)
    assert hub.content(NAME) == HEAD | folder_content(other)
    hub.datasets[NAME].commit(hub.content(NAME) | {"mine.txt": b"!"})
    with pytest.raises(ConfigError, match=r"mine.txt"):
        check_destination(NAME, kind="dataset", overwrite=True)


def test_a_link_in_the_folder_sends_nothing_of_what_it_leads_to(
    hub: Writable, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("mine")
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "shards" / "train-00001.json").symlink_to(tmp_path / "secret")
    with pytest.raises(HubError, match="nothing was sent"):
        check_destination(NAME, kind="dataset").send(copy, yes=True)
    assert not hub.datasets


def test_a_name_without_an_owner_is_refused(hub: Writable) -> None:
    with pytest.raises(ConfigError):
        check_destination("states", kind="dataset")
    assert not hub.datasets


@pytest.mark.parametrize("token", ["", "wrong"])
def test_who_may_not_write_is_told_so_before_anything_is_sent(
    token: str, hub: Writable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HubError) as refused:
        check_destination(NAME, kind="dataset")
    assert "HF_TOKEN" in refused.value.details["to do"]
    assert not hub.datasets
