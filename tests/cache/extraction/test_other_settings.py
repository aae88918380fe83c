"""A folder with a cache of other rows: the refusal says which setting reads them otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache import ExtractConfig
from gaam_cache.errors import ConfigError

ROWS = "title,body,topic,label,id\na b,q w,x, s,1\nc d,e r,y,t,2\ne f,t y,x, s,3\ng h,u i,y,t,4\n"
OTHERS: dict[str, tuple[Any, str, str]] = {
    "text_columns": (("body",), '["body"]', '["title"]'),
    "label_column": ("topic", "topic", "label"),
    "keep_columns": (("id",), '["id"]', "-"),
    "limit": (2, "2", "null"),
    "strip_labels": (True, "true", "-"),
}
"""A setting of how rows are read: another value, and both as they are said."""


def test_the_setting_that_differs_is_named_with_both_values(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / f"{name}.csv").write_text(ROWS)
    config = ExtractConfig(
        encoder="tfidf", dataset=str(tmp_path), text_columns=("title",), out=tmp_path / "out"
    )
    gaam_cache.extract(config)
    for setting, (value, now, then) in OTHERS.items():
        with pytest.raises(ConfigError, match="holds another cache") as refused:
            gaam_cache.extract(replace(config, **{setting: value}))
        lines = [line.split() for line in refused.value.message.splitlines()]
        assert [f"dataset.{setting}", "now", *f"{now}, in the folder {then}".split()] in lines
