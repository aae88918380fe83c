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
from gaam_cache.extraction import workers
from gaam_cache.placing import Placing
from tests.conftest import shard_bytes

Before = Callable[[], object]


class Here(Engine):
    """Workers one after the other in this process; ``before`` is called before each."""

    def __init__(self, before: Before, count: int) -> None:
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
    def extract(before: Before, count: int = 2, **options: Any) -> Any:
        monkeypatch.setattr(workers, "load_engine", lambda config: Here(before, count))
        config = replace(tiny_config, devices="2", **options)
        return gaam_cache.extract(config)

    return extract


@pytest.fixture
def whole(tiny_config: ExtractConfig, tmp_path: Path) -> dict[str, bytes]:
    config = replace(tiny_config, out=tmp_path / "alone")
    gaam_cache.extract(config)
    return shard_bytes(config.out)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_worker_that_comes_when_all_is_done_has_nothing_to_do(
    count: int,
    run: Callable[..., Any],
    whole: dict[str, bytes],
    tiny_config: ExtractConfig,
) -> None:
    """The first makes all and puts the rows away, so that those after it find none."""
    summary = run(lambda: None, count)
    assert shard_bytes(tiny_config.out) == whole
    assert (summary.shards_made, summary.missing, summary.rows_made) == (9, 0, 84)


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
    with pytest.raises(ConfigError) as caught:
        run(lambda: gaam_cache.extract(replace(tiny_config, limit=12)))
    assert "holds another" in str(caught.value) or "content" in str(caught.value)
