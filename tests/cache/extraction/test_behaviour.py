"""An encoder whose files are the same and whose library computes otherwise is another encoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import normalizers
from transformers.models.bert import modeling_bert

from tests.conftest import Outcome
from tests.tiny import build_encoder, random_rows, write_csv

Patch = pytest.MonkeyPatch
Gaam = Callable[..., Outcome]


def other_tokens(monkeypatch: Patch) -> None:
    """The tokenizer drops the letter 'a', as another version may fold case or accents."""
    original = transformers.AutoTokenizer.from_pretrained

    def from_pretrained(*args: Any, **options: Any) -> Any:
        tokenizer = original(*args, **options)
        tokenizer.backend_tokenizer.normalizer = normalizers.Replace("a", "b")
        return tokenizer

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", from_pretrained)


def other_states(monkeypatch: Patch) -> None:
    """The model computes another activation."""
    original = modeling_bert.BertIntermediate.forward

    def forward(self: Any, x_BTD: torch.Tensor) -> torch.Tensor:
        return 1.05 * original(self, x_BTD)

    monkeypatch.setattr(modeling_bert.BertIntermediate, "forward", forward)


CHANGES = {"tokens": other_tokens, "states": other_states}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder, its cache and a run."""
    root = tmp_path_factory.mktemp("behaviour")
    build_encoder(root / "encoder", "bert")
    write_csv(
        root / "rows/train.csv", [("a", "goal"), ("b", "bank"), *random_rows(28, 1)]
    )
    write_csv(root / "rows/test.csv", random_rows(10, 2))
    return root


def extract(made: Path, out: Path, gaam: Gaam) -> Any:
    return gaam(
        "extract",
        "--encoder",
        made / "encoder",
        "--dataset",
        made / "rows",
        "--out",
        out,
    )


def train(cache: Path, runs: Path, gaam: Gaam) -> list[str]:
    options = (
        "--attn",
        "none",
        "--seeds",
        1,
        "--epochs",
        1,
        "--lr",
        0.01,
        "--no-probe",
    )
    trained = gaam("train", "--cache", cache, "--runs", runs, *options)
    assert trained.code == 0, trained.err
    return sorted(folder.parent.name for folder in runs.glob("*/run.json"))


def resume(made: Path, cache: Path, runs: Path, gaam: Gaam) -> Any:
    for receipt in (cache / "shards").glob("*.json"):
        receipt.unlink()
    return extract(made, cache, gaam)


def predict(made: Path, cache: Path, runs: Path, gaam: Gaam) -> Any:
    return gaam("predict", runs, "goal bank")


def recompute(made: Path, cache: Path, runs: Path, gaam: Gaam) -> Any:
    return gaam("verify", cache, "--recompute", 2)


@pytest.mark.parametrize(
    "command", [resume, predict, recompute], ids=lambda it: it.__name__
)
@pytest.mark.parametrize("change", CHANGES)
def test_a_library_that_computes_otherwise_is_refused(
    change: str,
    command: Callable[..., Any],
    made: Path,
    tmp_path: Path,
    gaam: Gaam,
    monkeypatch: Patch,
) -> None:
    assert extract(made, tmp_path / "cache", gaam).code == 0
    train(tmp_path / "cache", tmp_path / "runs", gaam)
    CHANGES[change](monkeypatch)
    refused = command(made, tmp_path / "cache", tmp_path / "runs", gaam)
    assert refused.code in (2, 3), refused
    assert f"transformers {transformers.__version__}" in refused.err


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_of_other_states_is_another_run(
    change: str, made: Path, tmp_path: Path, gaam: Gaam, monkeypatch: Patch
) -> None:
    extract(made, tmp_path / "cache", gaam)
    before = train(tmp_path / "cache", tmp_path / "runs", gaam)
    CHANGES[change](monkeypatch)
    extract(made, tmp_path / "other", gaam)
    both = train(tmp_path / "other", tmp_path / "runs", gaam)
    assert len(both) == 2
    assert set(before) < set(both)
    report = json.loads(gaam("report", tmp_path / "runs", "--format", "json").out)
    assert len(report["other_caches"]) == 1
    used = gaam("predict", tmp_path / "runs" / before[0], "--cache", tmp_path / "other")
    assert used.code == 3, used


def test_a_cache_that_recorded_no_behaviour_is_read_with_a_note(
    made: Path, tmp_path: Path, gaam: Gaam
) -> None:
    from gaam_cache.store.files import fingerprint, sealed_text

    extract(made, tmp_path / "cache", gaam)
    file = tmp_path / "cache/cache.json"
    plan = json.loads(file.read_text())
    del plan["sha256_of_this"], plan["encoder"]["reference"]
    del plan["fingerprint_fields"]["encoder"]["tokens"]
    plan["fingerprint_fields"]["encoder"].pop("acts_causal", None)
    plan["fingerprint"] = fingerprint(plan["fingerprint_fields"])
    file.write_text(sealed_text(plan))
    resumed = resume(made, tmp_path / "cache", tmp_path, gaam)
    assert resumed.code == 0, resumed.err
    assert "did not record what its encoder does" in resumed.err
