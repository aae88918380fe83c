"""Hub code on what lies on this disk: the hub's own cache folder, and a data set in files."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest

import gaam_cache
from gaam_cache.config import DEFAULT_ENCODER, ExtractConfig
from gaam_cache.encoders import _located
from gaam_cache.encoders._located import locate
from gaam_cache.errors import ConfigError, HubError
from gaam_cache.messages import install
from gaam_cache.sources.hub import HubSource
from tests.conftest import needs_minilm, random_rows, write_csv

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub_copy(encoders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder that the hub's client keeps, with one model in it."""
    root = tmp_path / "hub"
    repository = root / "models--someone--tiny"
    shutil.copytree(encoders["bert"], repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(root))
    return root


@pytest.mark.parametrize("offline", [True, False])
def test_a_local_copy_serves_where_the_hub_is_out_of_reach(
    offline: bool, hub_copy: Path, tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    config = replace(tiny_config, encoder="someone/tiny", splits=("test",))
    gaam_cache.extract(config)
    plan = gaam_cache.open_cache(config.out).plan
    assert plan.encoder.pop("batching") == "padded"
    about = {"kind": "text", "name": "someone/tiny", "path": None, "revision": COMMIT}
    assert plan.encoder == about
    local = replace(tiny_config, splits=("test",))
    assert gaam_cache.extract(local).shards_made == 0, "the same files, the same fingerprint"


def test_the_only_split_of_a_data_set_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(20, 3)
    write_csv(tmp_path / "d" / "validation.csv", rows)
    monkeypatch.setattr("gaam_cache.sources.hub.fetch", lambda *a, **k: (tmp_path / COMMIT, None))
    config = ExtractConfig(dataset=str(tmp_path / "d"), test_fraction=0.25)
    source = HubSource()
    parts = {split: source.read(config, split) for split in config.splits}
    assert sum(map(len, parts.values())) == 20
    assert all(part.origin.endswith(f"validation, {split}") for split, part in parts.items())
    write_csv(tmp_path / "d" / "test.csv", rows)
    with pytest.raises(ConfigError, match="data with a single one"):
        HubSource().read(config, "test")


def test_declared_class_names_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["World", "Arts"])}
    )
    data = datasets.Dataset.from_dict({"text": ["x", "y", "z"], "label": [1, 0, 1]}, features)
    monkeypatch.setattr("gaam_cache.sources.hub.fetch", lambda *a, **k: (tmp_path / COMMIT, None))
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: data)
    read = HubSource().read(ExtractConfig(dataset="someone/news"), "train")
    assert read.class_names == ("World", "Arts")
    assert read.labels == ["Arts", "World", "Arts"]
    assert COMMIT[:12] in read.origin


@needs_minilm
def test_the_packaged_encoder_is_trusted_by_its_digest_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _located.PACKAGE in str(locate(DEFAULT_ENCODER, None).path)
    for name, value in (("PACKAGE_SHA256", "0" * 64), ("PACKAGE", "no_such_package")):
        monkeypatch.setattr(_located, name, value)
        with pytest.raises(HubError, match=re.escape(install("demo"))):
            locate(DEFAULT_ENCODER, None)
