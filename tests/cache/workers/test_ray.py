"""What is particular about workers on Ray."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import install
from gaam_cache.config import ExtractConfig, WorkerConfig
from gaam_cache.workers import load_engine
from gaam_cache.workers.engines.ray import _enter_folders


def test_a_node_that_does_not_see_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here, away = str(tmp_path), str(tmp_path / "away")
    _enter_folders([here, here])
    for bad in ([away], [here, away]):
        with pytest.raises(ConfigError, match=away) as caught:
            _enter_folders(bad)
        assert os.uname().nodename in str(caught.value)


def test_what_ray_cannot_do_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the package ray (extra 'ray') is not installed")
    bad = {
        "--devices 0,1": {"devices": "0,1"},
        "--device cuda:0": {"device": "cuda:0"},
        "127.0.0.1:1": {"address": "127.0.0.1:1"},
        "ray://no host:99999999": {"address": "ray://no host:99999999"},
    }
    nowhere = str(tmp_path / "nowhere")
    for message, options in bad.items():
        config = ExtractConfig(
            engine="ray", out=tmp_path / "out", dataset=nowhere, **options
        )  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=message):
            gaam_cache.extract(config)
    assert not (tmp_path / "out").exists()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError) as caught:
        load_engine(WorkerConfig(engine="ray")).check("cpu", WorkerConfig(engine="ray"))
    assert caught.value.details["to do"] == install("ray")
