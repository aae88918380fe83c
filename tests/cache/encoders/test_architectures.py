"""Whatever transformers maps to a model is right or refused: never wrong, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cache.encoders.walking import are_right, none_is_bad, results_of

MODULE = "tests.cache.encoders.architectures"
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
    results = results_of(MODULE, tmp_path, *REPRESENTATIVE)
    are_right(results, "batching", REPRESENTATIVE)
    zero = {name: result["zero"] for name, result in results.items()}
    assert {name: found["verdict"] for name, found in zero.items()} == dict.fromkeys(zero, "right")
    # by hooks too where the other layers are
    assert {name: found["how"] for name, found in zero.items()} == {
        name: result["how"] for name, result in results.items()
    }


@pytest.mark.slow
def test_every_architecture_is_right_or_refused(tmp_path: Path) -> None:
    results = results_of(MODULE, tmp_path)
    none_is_bad(results)
    none_is_bad({name: result["zero"] for name, result in results.items() if "zero" in result})
    zero = [result["zero"]["verdict"] for result in results.values() if "zero" in result]
    assert zero.count("right") > 0.9 * len(zero)
    assert sum(result["verdict"] == "right" for result in results.values()) > 200
