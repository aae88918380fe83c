"""Whatever transformers maps to a feature extractor is right or refused: never wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.encoders.walking import are_right, none_is_bad, results_of

MODULE = "tests.cache.encoders.audio.architectures"
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


def test_representative_architectures_are_right(tmp_path: Path) -> None:
    are_right(results_of(MODULE, tmp_path, *REPRESENTATIVE), "batching", REPRESENTATIVE)


@pytest.mark.slow
def test_every_architecture_is_right_or_refused(tmp_path: Path) -> None:
    results = results_of(MODULE, tmp_path)
    none_is_bad(results)
    assert {name for name, result in results.items() if result["verdict"] == "right"} >= RIGHT
