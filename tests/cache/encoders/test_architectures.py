"""Whatever transformers maps to a model is right or refused: never wrong, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def walk(folder: Path, *names: str) -> dict[str, Any]:
    """In a process of its own: what forks must not have threads."""
    results = folder / "results.json"
    command = [
        sys.executable,
        "-m",
        "tests.cache.encoders.architectures",
        *names,
        "--list",
        str(results),
    ]
    alone = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    environment = os.environ | alone | {"TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout[-6000:])
    found: dict[str, Any] = json.loads(results.read_text())
    return found


def test_representative_architectures_are_right(tmp_path: Path) -> None:
    results = walk(tmp_path, *REPRESENTATIVE)
    assert {name: result["verdict"] for name, result in results.items()} == dict.fromkeys(
        REPRESENTATIVE, "right"
    )
    assert {name: result["batching"] for name, result in results.items()} == REPRESENTATIVE
    zero = {name: result["zero"] for name, result in results.items()}
    assert {name: found["verdict"] for name, found in zero.items()} == dict.fromkeys(zero, "right")
    # by hooks too where the other layers are
    assert {name: found["how"] for name, found in zero.items()} == {
        name: result["how"] for name, result in results.items()
    }


@pytest.mark.slow
def test_every_architecture_is_right_or_refused(tmp_path: Path) -> None:
    results = walk(tmp_path)
    bad = {
        name: result["about"]
        for name, result in results.items()
        if result["verdict"] in {"wrong", "crashed"}
    }
    bad |= {
        f"{name}, layer 0": result["zero"]["about"]
        for name, result in results.items()
        if result.get("zero", {}).get("verdict") in {"wrong", "crashed"}
    }
    assert not bad, json.dumps(bad, indent=1)
    zero = [result["zero"]["verdict"] for result in results.values() if "zero" in result]
    assert zero.count("right") > 0.9 * len(zero)
    assert sum(result["verdict"] == "right" for result in results.values()) > 200
