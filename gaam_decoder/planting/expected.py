"""What ``gaam plant`` will make, for estimates of what is trained on it."""

from __future__ import annotations

import numpy as np

from gaam_cache.cache import EmbeddingCache
from gaam_cache.config_checks import SHARD_ROWS
from gaam_cache.expected import ExpectedCache
from gaam_cache.format.plan import Plan, rows_per_shard
from gaam_cache.format.planted import GAUSSIAN, KEY
from gaam_cache.format.receipt import ITEM_BYTES
from gaam_decoder.planting.plant import SPLITS, states_of
from gaam_decoder.planting.plant_config import PlantConfig


def expected_cache(config: PlantConfig, source: EmbeddingCache | None) -> ExpectedCache:
    """The cache that ``plant`` will make, but for its states, labels and fingerprint.

    Nothing is drawn: there are as many rows of every class, where a teacher has some more of one.

    Args:
        config: what to plant.
        source: the cache whose states are taken, which may itself be expected.

    Raises:
        ConfigError: more rows than the given cache has, or too few for the classes.
    """
    states = dict(zip(SPLITS, states_of(config, source), strict=True))
    num_layers, hidden_size = states["train"].shape[1:]
    dtype = config.storage_dtype or (source.plan.storage_dtype if source else "float32")
    row_bytes = num_layers * hidden_size * ITEM_BYTES[dtype]
    plan = Plan(
        fingerprint="",
        fingerprint_fields={"encoder": {}, "content": {name: name for name in SPLITS}},
        encoder={"kind": KEY, "name": config.gate, "batching": "alone"},
        dataset={"name": config.gate},
        num_layers=num_layers,
        hidden_size=hidden_size,
        pooling=(source.plan.pooling[0] if source else GAUSSIAN,),
        storage_dtype=dtype,
        class_names=tuple(str(number) for number in range(config.classes)),
        rows={name: len(of_split) for name, of_split in states.items()},
        shard_rows=rows_per_shard(row_bytes, SHARD_ROWS),
        created_with={},
    )
    labels = {name: np.arange(rows) % config.classes for name, rows in plan.rows.items()}
    return ExpectedCache(config.out, plan, labels)
