"""Whatever transformers maps to a model of pictures is right or refused: never wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.encoders.walking import are_right, none_is_bad, results_of

MODULE = "tests.cache.encoders.vision.architectures"
REPRESENTATIVE = {
    "pixio": [8, 24],  # several class tokens
    "radio": [10, 26],
    "blip-2": [1, 17],  # one of three parts
    "git": [1, 17],  # a part of a part
    "llava": [1, 17],
    "mgp-str": [1, 65],
}


def test_representative_architectures_are_right(tmp_path: Path) -> None:
    are_right(results_of(MODULE, tmp_path, *REPRESENTATIVE), "layout", REPRESENTATIVE)


@pytest.mark.slow
def test_every_architecture_is_right_or_refused(tmp_path: Path) -> None:
    results = results_of(MODULE, tmp_path)
    none_is_bad(results)
    assert sum(result["verdict"] == "right" for result in results.values()) > 60
