"""Rows of a planted cache are planted again, and every change of one is seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.errors import CacheError, NotFoundError
from gaam_cache.store.plan import Planted
from gaam_decoder import PlantConfig, plant
from gaam_decoder.planting.again import drawn_again
from gaam_decoder.planting.gates import GATES
from tests.conftest import Outcome

SMALL: dict[str, Any] = {"rows": 60, "layers": 4, "width": 3, "classes": 2}
Gaam = Callable[..., Outcome]


def check(cache: Path, rows: int = 10**6) -> Any:
    return gaam_cache.verify(cache, recompute_rows=rows, drawn=drawn_again, device="cpu")


@pytest.mark.parametrize("gate", GATES)
def test_all_rows_are_what_the_recipe_gives(gate: Any, tiny_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "source").symlink_to(tiny_cache)
    for number, options in enumerate(
        (
            SMALL,
            {**SMALL, "seed": 3, "strength": 1.23456789, "classes": 3},
            {**SMALL, "storage_dtype": "float16", "rows": 1700},
            {"from_cache": tmp_path / "source", "classes": 2},
            {"from_cache": tmp_path / "source", "classes": 2, "rows": 50, "seed": 1},
            {"from_cache": tmp_path / "source", "classes": 2, "storage_dtype": "float32"},
            {"from_cache": tmp_path / "source", "classes": 2, "storage_dtype": "float16"},
        )
    ):
        made = plant(PlantConfig(out=tmp_path / str(number), gate=gate, **options))
        found = check(tmp_path / str(number))
        assert found.good, found.in_words()
        assert found.recomputed.rows == sum(made.rows.values())
        assert "as they were planted" in found.in_words()


@pytest.mark.parametrize("what", ["state", "label"])
def test_a_row_that_is_another_is_seen(what: str, tmp_path: Path) -> None:
    """Written by somebody who knows how: every digest fits."""
    plant(PlantConfig(out=tmp_path / "p", **SMALL))
    whole = gaam_cache.open_cache(tmp_path / "p")
    splits = {n: (whole[n].embeddings[:].copy(), whole[n].labels.copy()) for n in whole}
    states, label = splits["train"]
    if what == "state":
        states[7, 2, 1] = np.nextafter(states[7, 2, 1], np.float32(9))
    else:
        label[7] = 1 - label[7]
    about = whole.plan.fingerprint_fields["encoder"]["imported"]["planted"]
    forged = Planted(parameters=about, figures={})
    gaam_cache.write(
        tmp_path / "q", splits, axes="nld", class_names=["0", "1"], pool="gaussian", planted=forged
    )
    assert gaam_cache.verify(tmp_path / "q").good
    found = check(tmp_path / "q")
    (bad,) = found.bad
    assert "row 7 has" in bad.reason


@pytest.mark.parametrize(
    "change",
    [
        {"gate": "sinc"},
        {"strength": "many"},
        {"strength": "0"},
        {"seed": "0"},
        {"seed": -1},
        {"parameters": {"b": "0.25"}},
        {"mechanism": "cauchy"},
        {"states": "0" * 64},
        {"more": "1"},
    ],
)
def test_what_this_version_does_not_plant_is_one_message(
    change: dict[str, Any], tmp_path: Path, gaam: Gaam
) -> None:
    plant(PlantConfig(out=tmp_path / "p", **SMALL))
    whole = gaam_cache.open_cache(tmp_path / "p")
    splits = {n: (whole[n].embeddings[:], whole[n].labels) for n in whole}
    about = whole.plan.fingerprint_fields["encoder"]["imported"]["planted"]
    gaam_cache.write(
        tmp_path / "q", splits, axes="nld", class_names=["0", "1"], pool="gaussian",
        planted=Planted(parameters={**about, **change}, figures={}),
    )  # fmt: skip
    outcome = gaam("verify", tmp_path / "q", "--recompute", 3, "--quiet")
    assert "Traceback" not in outcome.err
    assert (outcome.code != 0) == (outcome.err.count("error: ") == 1) == ("more" not in change)


def test_without_the_source_nothing_is_said_of_any_row(
    tiny_cache: Path, tmp_path: Path, gaam: Gaam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").symlink_to(tiny_cache)
    plant(PlantConfig(out=tmp_path / "in" / "p", from_cache=tmp_path / "source", classes=2))
    assert gaam("verify", tmp_path / "in" / "p", "--recompute", 5, "--quiet").code == 0
    (tmp_path / "source").unlink()
    shutil.copytree(tmp_path / "in" / "p", tmp_path / "another")
    with pytest.raises(NotFoundError, match="is not to be found"):
        check(tmp_path / "in" / "p")
    assert gaam_cache.verify(tmp_path / "in" / "p").good
    with pytest.raises(CacheError, match="recomputed by who planted them"):
        gaam_cache.verify(tmp_path / "in" / "p", recompute_rows=1)
