"""What a server does: one predictor, many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_decoder.config import TrainConfig
from tests.tiny import random_rows

TEXTS = [text for _, text in random_rows(25, 7)]


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("runs")
    config = TrainConfig(
        attn=("gaam", "mha"), cache=tiny_cache, runs=out, seeds=("3",), epochs=2, compile="off"
    )
    return [run.path for run in gaam_decoder.train(config)]


def test_threads_get_the_answers_that_one_request_after_another_gets(runs: list[Path]) -> None:
    reference = [gaam_decoder.load(run) for run in runs]
    expected = [[one.predict_proba([text]) for text in TEXTS] for one in reference]
    fresh = [gaam_decoder.load(run) for run in runs]  # their encoders are opened by the threads
    asked = [(which, place) for place in range(len(TEXTS)) for which in (0, 1)] * 4

    def ask(request: tuple[int, int]) -> np.ndarray:
        which, place = request
        return fresh[which].predict_proba([TEXTS[place]])

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, asked))
    for (which, place), probabilities_NC in zip(asked, found, strict=True):
        np.testing.assert_array_equal(probabilities_NC, expected[which][place])


def test_threads_may_share_an_exported_decoder(
    runs: list[Path], tiny_cache: Path, tmp_path: Path
) -> None:
    import torch

    from gaam_cache import open_cache
    from gaam_decoder.use.hub_model import HubDecoder

    gaam_decoder.export_run(runs[1], tmp_path / "exported")
    decoder = HubDecoder.from_pretrained(tmp_path / "exported")
    states = torch.from_numpy(np.asarray(open_cache(tiny_cache)["test"].embeddings[:]))
    with torch.inference_mode():
        expected = [decoder(states[[row]]) for row in range(len(states))]

    def ask(row: int) -> torch.Tensor:
        with torch.inference_mode():
            return decoder(states[[row]])

    rows = [*range(len(states))] * 20
    with ThreadPoolExecutor(8) as pool:
        for row, found in zip(rows, pool.map(ask, rows), strict=True):
            assert torch.equal(found, expected[row])
