"""Whatever transformers maps to a feature extractor is right or refused: never wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
REPRESENTATIVE = {
    "wav2vec2-bert": "padded",  # features two rows at a time, masked
    "sew": "equal lengths",  # half of the frames
    "moonshine": "equal lengths",  # the encoder of an encoder-decoder, a group norm
}
RIGHT = {
    "data2vec-audio", "hubert", "lasr_encoder", "moonshine", "nemotron_asr_streaming_encoder",
    "parakeet_encoder", "sew", "speech_to_text", "unispeech", "unispeech-sat", "wav2vec2",
    "wav2vec2-bert", "wav2vec2-conformer", "wavlm", "whisper",
}  # fmt: skip


def walk(folder: Path, *names: str) -> dict[str, Any]:
    """In a process of its own: what forks must not have threads."""
    results = folder / "results.json"
    module = "tests.cache.encoders.audio.architectures"
    command = [sys.executable, "-m", module, *names, "--list", str(results)]
    alone = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | alone, capture_output=True, text=True, check=False
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


@pytest.mark.slow
def test_every_architecture_is_right_or_refused(tmp_path: Path) -> None:
    results = walk(tmp_path)
    bad = {
        name: result["about"]
        for name, result in results.items()
        if result["verdict"] in {"wrong", "crashed"}
    }
    assert not bad, json.dumps(bad, indent=1)
    assert {name for name, result in results.items() if result["verdict"] == "right"} >= RIGHT
