"""The same files as a data set of every source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

SOURCES = ("folder", "csv", "jsonl", "parquet", "parquet bytes", "parquet struct", "hub")


def lay_out(root: Path, files: dict[str, dict[str, bytes]]) -> None:
    for split, of_split in files.items():
        for name, content in of_split.items():
            path = root / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def write_table(
    path: Path, records: list[dict[str, Any]], schema: pyarrow.Schema | None = None
) -> None:
    if path.suffix == ".csv":
        lines = [",".join(map(str, record.values())) for record in records]
        path.write_text("\n".join([",".join(records[0]), *lines]) + "\n")
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, records)) + "\n")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records, schema), path)


STORED = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def of_hub(name: str, records: list[dict[str, Any]], names: list[str] | None = None) -> Any:
    """A table of the datasets library with a feature that it would decode with torchcodec."""
    import datasets

    label = datasets.ClassLabel(names=names) if names else datasets.Value("string")
    features = datasets.Features(
        {
            name: datasets.Image() if name == "image" else datasets.Audio(),
            "label": label,
            "who": datasets.Value("string"),
        }
    )
    label_type = pyarrow.int64() if names else pyarrow.string()
    table = pyarrow.table(
        {
            name: pyarrow.array([record["file"] for record in records], STORED),
            "label": pyarrow.array([record["label"] for record in records], label_type),
            "who": [record["who"] for record in records],
        }
    )
    table = datasets.table.InMemoryTable(table)
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=features))


def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a data set of files for any source, by its name."""
    import datasets

    fetched = (Path("0" * 40), None)
    monkeypatch.setattr("gaam_cache.sources.hub.fetch", lambda *a, **k: fetched)

    def make(source: str, files: dict[str, dict[str, bytes]], feature: str = "audio") -> str:
        root = tmp_path / source
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        if source == "folder":
            lay_out(root, files)
            return str(root)
        tables = {}
        for split, of_split in files.items():
            records: list[dict[str, Any]] = []
            for name, content in of_split.items():
                cell: Any = f"media/{split}/{name}"
                if source == "parquet bytes":
                    cell = content
                elif source in ("parquet struct", "hub"):
                    cell = {"bytes": content, "path": name}
                records.append(
                    {"file": cell, "label": name.split("/")[0], "who": Path(name).stem[-1]}
                )
            tables[split] = records
        if source == "hub":
            loaded = {split: of_hub(feature, records) for split, records in tables.items()}
            monkeypatch.setattr(datasets, "load_dataset", lambda *a, split, **k: loaded[split])
            return "someone/sounds"
        lay_out(root / "media", files)
        for split, records in tables.items():
            write_table(root / f"{split}.{source.split()[0]}", records)
        return str(root)

    return make
