"""What a plan records of encoder and data set: checked when it is read, and kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.common.errors import CacheError
from gaam_cache.store.files import sealed_text, unsealed
from gaam_cache.store.plan import Plan, read_plan
from tests.cache.store.forgery import edit_json

GOLDEN = Path(__file__).parents[2] / "golden/v0.1.0/cache"


# 'part.key' -> a value of a wrong type; ``...`` stands for a missing key
BAD_FIELDS: dict[str, Any] = {
    "encoder.kind": ...,
    "encoder.name": 3,
    "encoder.path": ["a"],
    "encoder.revision": ...,
    "encoder.batching": "sometimes",
    "encoder.reference": {"mean": 1.0},
    "encoder.adapter_of": False,
    "dataset.name": None,
    "dataset.path": 7,
    "dataset.revision": 7,
    "dataset.origin": {"train": None},
    "dataset.shared_texts": {"train": {"test": True}},
    "dataset.import": "files",
    "dataset.planted": [],
    "dataset.equal_rows": {"train": [[0, "1"]]},
    "dataset.row_sketches": {"train": ["00"]},
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_a_bad_field_is_refused_and_named(name: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN, tmp_path / "cache"))
    part, _, key = name.partition(".")

    def damage(content: dict[str, Any]) -> None:
        content[part].pop(key, None)
        if BAD_FIELDS[name] is not ...:
            content[part][key] = BAD_FIELDS[name]

    edit_json(root / "cache.json", damage)
    with pytest.raises(CacheError, match="the plan of the cache is unusable") as error:
        read_plan(root)
    assert f"'{name}'" in error.value.details["found"]
    assert len(str(error.value).splitlines()) == 4


# keys of other versions, and all that an extraction or an import may record
EXTRAS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "a later version": {"from_later": {"a": [1, None]}},
    "settings": {"subset": "cola", "limit_rule": "first"},
}


@pytest.mark.parametrize("extras", EXTRAS)
def test_a_plan_keeps_every_byte(extras: str) -> None:
    content = unsealed(json.loads((GOLDEN / "cache.json").read_text()))
    shared_texts = content["dataset"].pop("shared_texts")
    content["dataset"] |= EXTRAS[extras] | {"shared_texts": shared_texts}
    content["dataset"]["equal_rows"] = {"train": [[0, 2]]}
    content["dataset"]["row_sketches"] = {"train": "0123456789ab"}
    content["encoder"] |= {"adapter_of": "base", **EXTRAS[extras]}
    assert Plan.from_dict(content).to_json() == sealed_text(content)


def test_the_plan_of_the_first_version_is_kept_byte_for_byte() -> None:
    assert read_plan(GOLDEN).to_json() == (GOLDEN / "cache.json").read_text()
