"""What the caller of workers does before, beside and after them; without any process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig, Placing
from gaam_cache.engines._base import Engine, Hear, Place, Task
from gaam_cache.errors import ConfigError
from tests.conftest import shard_bytes


class Here(Engine):
    """Workers one after the other in this process."""

    def __init__(self, count: int) -> None:
        self.count = count

    def check(self, device: str, placing: Placing) -> None:
        pass

    def run(self, task: Task, placing: Placing, hear: Hear) -> list[Any]:
        results = []
        for number in range(self.count):

            def tell(kind: str, value: Any, number: int = number) -> None:
                hear(number, kind, value)

            place = Place(number, self.count, "cpu", self.count)
            results.append(task.work(task.argument, place, tell))
        return results


@pytest.mark.parametrize("count", [1, 3])
def test_workers_make_together_what_one_process_makes(
    count: int, tiny_config: ExtractConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first makes all, so that those after it find nothing to do."""
    gaam_cache.extract(replace(tiny_config, out=tmp_path / "alone"))
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr("gaam_cache.extraction.extract.load_engine", lambda config: Here(count))
    summary = gaam_cache.extract(
        replace(tiny_config, devices="2"),
        progress=lambda done, total, text: seen.append((done, total)),
    )
    assert shard_bytes(tiny_config.out) == shard_bytes(tmp_path / "alone")
    assert (summary.shards_made, summary.missing, summary.rows_made) == (9, 0, 84)
    assert summary.workers == count
    assert seen[-1] == (84, 84)


def test_another_cache_that_was_completed_meanwhile_is_refused(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Here):
        def run(self, *given: Any) -> list[Any]:
            gaam_cache.extract(replace(tiny_config, limit=12))
            return super().run(*given)

    monkeypatch.setattr("gaam_cache.extraction.extract.load_engine", lambda config: Late(2))
    with pytest.raises(ConfigError, match="holds another"):
        gaam_cache.extract(replace(tiny_config, devices="2"))
