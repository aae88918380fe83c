"""Whatever transformers maps to a model is right or refused: never wrong, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import architectures

ROOT = Path(__file__).parents[3]
REPRESENTATIVE = {
    "convbert": "equal lengths",  # convolutions that no mask reaches
    "mobilebert": "equal lengths",  # embeddings of three tokens at once
    "xlnet": "padded",  # states lie as (T, B, D)
    "bart": "padded",
    "t5": "padded",
    "albert": "padded",  # one layer for all
    "longformer": "padded",  # states padded to windows
    "fsmt": "padded",  # an encoder without a configuration of its own
    "mpt": "padded",
    "deepseek_v32": "equal lengths",  # chooses keys among equals
}


def test_representative_architectures_are_right(tmp_path: Path) -> None:
    """Four of them; ``tests/contract/test_1_states.py`` has others."""
    expected = {
        name: REPRESENTATIVE[name] for name in ("xlnet", "fsmt", "mpt", "deepseek_v32")
    }
    results = {name: architectures.judge(name, tmp_path / name) for name in expected}
    assert {one["verdict"] for one in results.values()} == {"right"}, results
    assert {name: one["batching"] for name, one in results.items()} == expected


@pytest.mark.slow
def test_every_architecture_is_right_or_refused(tmp_path: Path) -> None:
    """Of the walk, in a process of its own: what forks must not have threads."""
    module = "tests.benchmarks.architectures"
    command = [sys.executable, "-m", module, str(tmp_path / "all")]
    alone = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
    )
    environment = os.environ | alone | {"TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((tmp_path / "all").read_text())
    bad = {
        name: one
        for name, one in results.items()
        if one["verdict"] in {"wrong", "crashed"}
    }
    assert not bad, json.dumps(bad, indent=1)
    assert sum(one["verdict"] == "right" for one in results.values()) > 200
    assert {
        name: results[name]["batching"] for name in REPRESENTATIVE
    } == REPRESENTATIVE
