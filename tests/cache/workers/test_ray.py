"""Workers on Ray: their folders, their options, and Ray that is not installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import install_command
from gaam_cache.config import ExtractConfig, WorkerConfig
from gaam_cache.workers import load_engine
from gaam_cache.workers.engines.ray import _enter_folders


def test_a_node_that_does_not_see_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    away = str(tmp_path / "away")
    _enter_folders([here, here])
    for folders in ([away], [here, away]):
        with pytest.raises(ConfigError, match=away) as caught:
            _enter_folders(folders)
        assert os.uname().nodename in str(caught.value)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--devices 0,1", {"devices": "0,1"}),
        ("--device cuda:0", {"device": "cuda:0"}),
        ("127.0.0.1:1", {"address": "127.0.0.1:1"}),
        ("ray://no host:99999999", {"address": "ray://no host:99999999"}),
    ],
    ids=["devices", "device", "address", "no address"],
)
def test_what_ray_cannot_do_is_refused_before_anything_is_read(
    words: str, options: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    dataset = str(tmp_path / "nowhere")
    out = tmp_path / "out"
    config = ExtractConfig(engine="ray", out=out, dataset=dataset, **options)
    with pytest.raises(ConfigError, match=words):
        gaam_cache.extract(config)
    assert not out.exists()


def test_without_ray_the_message_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    monkeypatch.setitem(sys.modules, "ray", None)
    config = WorkerConfig(engine="ray")
    with pytest.raises(ConfigError) as caught:
        load_engine(config).check("cpu", config)
    assert caught.value.details["to do"] == install_command("ray")
