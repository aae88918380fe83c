"""What ``make gpu`` runs: without a GPU it says so at once; rehearsed, each part leaves figures."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.on_gpu import SECONDS

ROOT = Path(__file__).parents[2]
MACHINE = {"cpu", "threads", "python", "torch", "memory_gb", "gpu"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize("module", ["on_gpu", "bench_gpu", "bench_gpu_train"])
def test_without_a_gpu_nothing_is_begun(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--json", str(tmp_path / "figures.json")])
    with pytest.raises(SystemExit, match=re.escape(torch.__version__)):
        importlib.import_module(f"tests.benchmarks.{module}").main()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_rehearsal_of_all_parts_leaves_figures(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.on_gpu",
        "--tiny",
        "--json",
        str(tmp_path / "gpu.json"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout[-3000:], done.stderr[-3000:])
    assert done.returncode == 0
    found: dict[str, Any] = json.loads((tmp_path / "gpu.json").read_text())
    assert found.keys() == {"machine", *SECONDS}
    assert found["machine"].keys() >= MACHINE
    assert found["tests"]["found"]["count"] > 20
    assert not found["tests"]["found"]["failed"]
    extraction, training = found["extraction"]["found"], found["training"]["found"]
    assert {
        "tokens_per_second",
        "share_of_ceiling",
        "projected_ag_news_hours",
    } <= extraction.keys()
    assert training["projected_hours_of_10_seeds_35_epochs_120000_rows"] > 0
    assert 0 < training["conv, bfloat16"]["share_of_ceiling"] < 1
