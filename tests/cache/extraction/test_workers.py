"""What the caller of workers does before, beside and after them; without any process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.engines._base import Engine, Hear, Place, Task
from gaam_cache.errors import ConfigError
from gaam_cache.placing import Placing
from tests.conftest import shard_bytes


class Here(Engine):
    """Workers one after the other in this process; ``before`` is called before each."""

    def __init__(self, before: Callable[[], object], count: int) -> None:
        self.before = before
        self.count = count

    def check(self, device: str, placing: Placing) -> None:
        pass

    def run(self, task: Task, placing: Placing, hear: Hear) -> list[Any]:
        results = []
        for number in range(self.count):
            self.before()

            def tell(kind: str, value: Any, number: int = number) -> None:
                hear(number, kind, value)

            place = Place(number, self.count, "cpu", self.count)
            results.append(task.work(task.argument, place, tell))
        return results


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tiny_config: ExtractConfig) -> Callable[..., Any]:
    def extract(before: Callable[[], object], count: int = 2, **options: Any) -> Any:
        module = "gaam_cache.extraction.extract.load_engine"
        monkeypatch.setattr(module, lambda config: Here(before, count))
        return gaam_cache.extract(replace(tiny_config, devices="2"), **options)

    return extract


@pytest.fixture
def whole(tiny_config: ExtractConfig, tmp_path: Path) -> dict[str, bytes]:
    config = replace(tiny_config, out=tmp_path / "alone")
    gaam_cache.extract(config)
    return shard_bytes(config.out)


@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_that_comes_when_all_is_done_has_nothing_to_do(
    count: int, run: Callable[..., Any], whole: dict[str, bytes], tiny_config: ExtractConfig
) -> None:
    seen: list[tuple[int, int]] = []
    summary = run(lambda: None, count, progress=lambda done, of, text: seen.append((done, of)))
    assert shard_bytes(tiny_config.out) == whole
    assert (summary.shards_made, summary.missing, summary.rows_made) == (9, 0, 84)
    assert summary.workers == count
    assert seen[-1] == (84, 84)


def test_where_others_complete_the_cache_before_any_worker_begins_that_is_said(
    run: Callable[..., Any], whole: dict[str, bytes], tiny_config: ExtractConfig
) -> None:
    summary = run(lambda: gaam_cache.extract(tiny_config))
    assert shard_bytes(tiny_config.out) == whole
    assert (summary.shards_made, summary.missing) == (0, 0)
    assert "nothing to do, every shard was there" in summary.in_words()


def test_another_cache_that_was_completed_meanwhile_is_refused(
    run: Callable[..., Any], tiny_config: ExtractConfig
) -> None:
    with pytest.raises(ConfigError, match="holds another"):
        run(lambda: gaam_cache.extract(replace(tiny_config, limit=12)))
