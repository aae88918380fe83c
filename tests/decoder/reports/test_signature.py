"""The line below a table: whatever it says is read back, and it tells tables apart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gaam_cache.errors import ConfigError
from gaam_decoder.reports.signature import LONGEST, read, signature, spell
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import answers, build_run
from tests.hostile_strings import HOSTILE

BASE = {"lr": 1e-3, "epochs": 3, "select": "val"}
CHANGES = {
    "lr": 0.002, "epochs": 4, "select": "last", "weight_decay": 0.3, "batch_size": 7,
    "loss": "focal:gamma=2.5", "schedule": "plateau", "clip_grad_norm": 1.5, "val_fraction": 0.2,
    "split_seed": 4, "pool": "last", "layers": "1-3", "train_split": "more", "test_split": "other",
    "dtype": "bfloat16", "loss_scale": "dynamic", "clip_order": "clip-first", "ties": "first",
    "eval_dtype": "float32", "shuffle_labels": True, "shuffle": "window:64",
    "class_weights": "balanced", "plugins": {"mechanism of-mine": "abc 1.0"}, "new_setting": 3,
}  # fmt: skip


def line(*names: str, seeds: int = 6, **recipe: object) -> str:
    runs = [
        build_run(n, answers(seeds, 0.8, place), path=f"{n}{place}", **(BASE | recipe))
        for place, n in enumerate(names or ("none", "gaam"))
    ]
    return signature(build_tables(runs)[0])


def test_every_setting_tells_tables_apart_and_is_read_back() -> None:
    lines = {"": line()}
    for name, value in CHANGES.items():
        lines[name] = line(**{name: value})
        assert name.replace("_", "-") in read(lines[name])
    lines["attn"] = line("none", "mha")
    lines["seeds"] = line(seeds=7)
    assert len(set(lines.values())) == len(lines)
    for one in lines.values():
        assert spell(read(one)) == one
        assert one.isascii()
        assert len(one.split("\n")) == 1


def test_words_of_any_kind_come_back() -> None:
    rng = random.Random(0)
    words = [str(word) for word in HOSTILE]
    words += ["".join(chr(rng.randrange(1, 0x2FFF)) for _ in range(8)) for _ in range(200)]
    for word in ("", *words):
        found = {"gaam": ("1",), "cache": ("f",), "attn": (word, word), "signature": ("1",)}
        text = spell(found)
        assert text.isascii()
        assert "\n" not in text
        if len(word) <= LONGEST:
            assert read(text) == found


def test_no_path_of_this_machine_is_in_it(tmp_path: Path) -> None:
    runs = [
        build_run("none", answers(6, 0.8, 1), path=str(tmp_path / "secret"),
                  cache={"path": str(tmp_path), "dataset": str(tmp_path), "encoder": str(tmp_path)})
    ]  # fmt: skip
    assert str(tmp_path) not in signature(build_tables(runs)[0])


@pytest.mark.parametrize("text", ["", "|", "gaam", "gaam 1|cache f", "x|gaam 1|signature 1", "a"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no signature"):
        read(text)
