"""Rows and encoders that are not on this machine: a dry run says which, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaam_cache.config import ExtractConfig
from tests.decoder.studying.test_estimating import EXTRACTED
from tests.decoder.studying.tiny_study import Gaam, written


def unreachable(*_: object, **__: object) -> None:
    raise ConnectionError("Name or service not known")


@pytest.mark.parametrize("way", ["offline", "no network"])
@pytest.mark.parametrize("lacking", ["rows", "encoder"])
def test_what_is_not_here_is_said_in_one_line_with_what_to_do(
    way: str,
    lacking: str,
    tiny_config: ExtractConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gaam: Gaam,
) -> None:
    monkeypatch.chdir(tmp_path)
    if way == "offline":
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
        monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    encoder = "nobody/no-such-encoder" if lacking == "encoder" else tiny_config.encoder
    dataset = "nobody/no-such-rows" if lacking == "rows" else tiny_config.dataset
    written(tmp_path, EXTRACTED.format(encoder, dataset))
    told = gaam("study", "tiny", "--dry-run")
    assert told.code == 0
    reason = told.out.splitlines()[1]
    assert reason.startswith(f"  # no estimate: the {lacking} ")
    assert f"not here ({'HF_HUB_OFFLINE' if way == 'offline' else 'the hub could not be'}" in reason
    assert "nobody/no-such-" in reason
    do = "--dataset FOLDER names the same rows on this machine" if lacking == "rows" else "HF_HOME"
    assert do in reason
    assert "..." not in reason
    assert "\\n" not in reason
    assert told.out.count("\n") == 5  # two commands, what each costs, all together


def test_rows_that_a_person_names_and_that_are_not_there_are_said(
    tiny_config: ExtractConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaam: Gaam
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, EXTRACTED.format(tiny_config.encoder, "nobody/no-such-rows"))
    for name in ("./nothing", str(tmp_path / "nothing")):
        reason = gaam("study", "tiny", "--dry-run", "--dataset", name).out.splitlines()[1]
        assert reason.startswith("  # no estimate: ")
        assert "no data set at" in reason
        assert "\\n" not in reason
    cost = gaam("study", "tiny", "--dry-run", "--dataset", str(tiny_config.dataset)).out
    assert "no estimate" not in cost
