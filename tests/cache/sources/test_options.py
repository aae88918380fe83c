"""Which setting plays a part in which source; one that plays none is refused."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import gaam_cache
from gaam_cache import settings
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from gaam_cache.extraction.job import read_rows
from gaam_cache.extraction.recorded import extract_command, recorded_settings
from gaam_cache.format.digest import digest_of
from gaam_cache.sources import _row_checks as row_checks
from gaam_cache.sources._base import find_source
from tests.conftest import write_csv

ROWS = [{"label": " a", "text": "goal", "who": "x"}, {"label": "b", "text": "cup", "who": "y"}]
SETTINGS: dict[str, Any] = {
    "delimiter": ",",
    "encoding": "ascii",
    "strip_labels": True,
    "skip_empty": True,
    "keep_columns": ("who",),
}
PLAY = {
    "csv": {"delimiter", "encoding", "strip_labels", "skip_empty", "keep_columns"},
    "jsonl": {"encoding", "strip_labels", "skip_empty", "keep_columns"},
    "parquet": {"strip_labels", "skip_empty", "keep_columns"},
    "hub": {"strip_labels", "skip_empty", "keep_columns"},
    "news-sample": {"strip_labels", "skip_empty"},
}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A data set for every source."""
    for suffix in ("csv", "jsonl", "parquet"):
        folder = tmp_path / suffix
        folder.mkdir()
        path = folder / f"train.{suffix}"
        if suffix == "csv":
            path.write_text("label,text,who\n a,goal,x\nb,cup,y\n")
        elif suffix == "jsonl":
            path.write_text("\n".join(map(json.dumps, ROWS)))
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    import datasets

    data = datasets.Dataset.from_list(ROWS)
    monkeypatch.setattr("gaam_cache.sources.hub.resolve_revision", lambda *a, **k: None)
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: data)
    names = {name: str(tmp_path / name) for name in ("csv", "jsonl", "parquet")}
    return names | {"hub": "someone/news", "news-sample": "news-sample"}


def test_every_setting_plays_a_part_or_is_refused(places: dict[str, str]) -> None:
    for place, (name, value) in product(places, SETTINGS.items()):
        if (place, name) == ("news-sample", "keep_columns"):
            value = ("title",)
        config = ExtractConfig(dataset=places[place], splits=("train",), **{name: value})
        source = find_source(config.dataset)
        if name in PLAY[place] or (place, name) == ("news-sample", "keep_columns"):
            rows = source.read(config, "train")
            assert len(rows) >= 2
            assert (rows.labels[0] == " a") == (place != "news-sample" and name != "strip_labels")
            assert list(rows.kept) == (list(value) if name == "keep_columns" else [])
        else:
            with pytest.raises(ConfigError, match=f"--{name} plays no part here") as caught:
                source.read(config, "train")
            assert "to do" in caught.value.details


def test_settings_of_rows_are_recorded_and_read_back(places: dict[str, str]) -> None:
    """A plan has them as JSON values, a command line as words."""
    values: list[dict[str, Any]] = [
        {"delimiter": delimiter} for delimiter in ("\t", "tab", ";", " ", "semicolon", "é", ",")
    ]
    values += [{"encoding": "utf-16-le"}, {"strip_labels": True}, {"skip_empty": True}]
    values += [{"keep_columns": ("a", "b")}, {"unlabelled": ("test",)}, {"file_column": "path"}]
    values += [{"test_fraction": 0.1, "split_seed": 3}, {"allow_outside": True}]
    values += [{"test_fraction": 1 / 3}]
    for given in values:
        config = ExtractConfig(**given)
        recorded = json.loads(json.dumps(recorded_settings(config, "dataset")))
        back = settings.resolve(ExtractConfig, "extract", recorded)
        for name, value in given.items():
            found = getattr(back, name)
            words = {"\t": "tab", "semicolon": ";"}
            assert found == (words.get(value, value) if name == "delimiter" else value)
        assert "gaam extract --" in extract_command(back)


@pytest.mark.parametrize("word", ["tab", "\t", "semicolon", "pipe", "space", " ", "|", ","])
def test_delimiters_as_they_are_written_in_a_shell(word: str) -> None:
    config = settings.resolve(ExtractConfig, "extract", {"delimiter": word})
    assert config.delimiter in ("tab", ";", "|", " ", ",")
    for bad in ("", "tabs", ";;", '"', "\0"):
        with pytest.raises(ConfigError, match="delimiter"):
            settings.resolve(ExtractConfig, "extract", {"delimiter": bad})


def test_a_split_without_labels_is_spoken_of_by_no_warning(tmp_path: Path) -> None:
    train = [("a", "one"), ("b", "two"), ("b", "three")]
    write_csv(tmp_path / "train.csv", train)
    # all of it in train, twice, with another label; and neither class
    write_csv(tmp_path / "test.csv", [("b", "one"), ("a", "one"), ("b", "one"), ("A", "x")])
    config = ExtractConfig(dataset=str(tmp_path), unlabelled=("test",))
    source = find_source(config.dataset)
    rows = {split: source.read(config, split) for split in config.splits}
    groups = list(row_checks.repeated_texts(rows))
    assert groups
    assert row_checks.check_rows(rows, ("a", "b"), groups) == []
    assert row_checks.shared_texts(groups)["test"] == {"train": 3, "test": 3}


def test_the_summary_names_rows_that_were_left_out(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    write_csv(tmp_path / "d" / "train.csv", [(label, "goal cup") for label in "abab"])
    write_csv(tmp_path / "d" / "test.csv", [("a", " "), *[("b", "")] * 4, ("a", "bank")])
    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(tmp_path / "d"),
        out=tmp_path / "cache",
        skip_empty=True,
    )
    summary = gaam_cache.extract(config)
    assert summary.to_dict()["skipped"] == {
        "test": {"rows": 5, "first": ["line 2", "line 3", "line 4"]}
    }
    assert "test 5: line 2, line 3, line 4, ... (skip-empty)" in summary.in_words()
    again = gaam_cache.extract(config)
    assert "left out" in again.in_words()
    assert again.shards_made == 0
    # the rows that are left decide what the cache is
    write_csv(tmp_path / "d" / "test.csv", [("a", "bank")])
    assert gaam_cache.extract(config).skipped == {}
    assert gaam_cache.verify(config.out, recompute_rows=3).good


def test_the_rows_of_a_cache_are_read_again_as_they_were(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "all.csv"
    lines = [f"{'ab'[n % 2]} ;goal cup\t{n}" for n in range(12)] + ["a;"]
    path.write_bytes("\n".join(["label;text", *lines]).encode("utf-16"))
    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(path),
        out=tmp_path / "cache",
        delimiter=";",
        encoding="utf-16",
        strip_labels=True,
        skip_empty=True,
        test_fraction=0.3,
        split_seed=5,
    )
    gaam_cache.extract(config)
    checked = gaam_cache.verify(config.out, recompute_rows=6)
    assert checked.good
    assert checked.recomputed is not None
    assert checked.recomputed.rows == 6
    plan = gaam_cache.open_cache(config.out).plan
    assert plan.class_names == ("a", "b")
    assert plan.rows == {"train": 8, "test": 4}
    assert read_rows(config).content == plan.fingerprint_fields["content"]
    assert digest_of(b"") != plan.fingerprint


def test_a_hub_data_set_with_one_split_is_divided(
    places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    rows = [{"label": "ab"[n % 2], "text": f"text {n}"} for n in range(10)]
    data = datasets.DatasetDict({"validation": datasets.Dataset.from_list(rows)})
    asked: list[object] = []

    def load(*names: object, **options: object) -> Any:
        asked.append(options["split"])
        return data

    monkeypatch.setattr(datasets, "load_dataset", load)
    config = ExtractConfig(dataset="someone/news", test_fraction=0.2)
    checked = read_rows(config)
    assert {name: len(part) for name, part in checked.rows.items()} == {"train": 8, "test": 2}
    assert checked.rows["test"].origin.endswith("validation, test")
    assert asked == [None], "once, whatever splits there are"
    data["test"] = data["validation"]
    with pytest.raises(ConfigError, match=r"single one(.|\n)*validation, test"):
        read_rows(config)
