"""A split as a data set of the library ``datasets``.

L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gaam_cache.errors import CacheError
from gaam_cache.format.layout import embeddings_key
from gaam_cache.format.plan import Plan

if TYPE_CHECKING:
    import datasets

    from gaam_cache.cache import EmbeddingCache, Split

READ_BYTES = 32 * 2**20
"""Of states that are read at a time."""


def arrow_rows(
    split: Split,
    root: Path,
    plan: Plan,
    open_cache: Callable[[str], EmbeddingCache],
    streaming: bool,
    folder: Path | None,
) -> datasets.Dataset | datasets.IterableDataset:
    """See ``Split.to_dataset``.

    Args:
        split: whose rows they are.
        root: of its cache.
        plan: of its cache.
        open_cache: opens it again.
        streaming: read rows when they are asked for, and keep none.
        folder: where what is read is kept; None: where ``datasets`` keeps all.
    """
    import datasets

    asked = {
        "root": str(root.absolute()),
        "split": split.name,
        "fingerprint": plan.fingerprint,
        "open_cache": open_cache,
    }
    features = _features(split, plan)
    if streaming:
        return datasets.IterableDataset.from_generator(rows_of, features, asked)
    return datasets.Dataset.from_generator(
        rows_of,
        features=features,
        gen_kwargs=asked,
        split=datasets.NamedSplit(split.name),
        cache_dir=None if folder is None else str(folder),
        writer_batch_size=_rows_at_a_time(plan),
    )


def _features(split: Split, plan: Plan) -> datasets.Features:
    from datasets import Array2D, ClassLabel, Features, Value

    stored = split.embeddings.dtype.name  # of bfloat16 the equal float32
    shape = plan.num_layers, plan.hidden_size
    return Features(
        {
            **{embeddings_key(plan, name): Array2D(shape, stored) for name in plan.pooling},
            "label": ClassLabel(names=list(plan.class_names)),
            "num_tokens": Value("int32"),
            **{name: Value("string") for name in plan.columns},
        }
    )


def _rows_at_a_time(plan: Plan) -> int:
    return max(1, READ_BYTES // (plan.num_layers * plan.hidden_size * 4))


def rows_of(
    root: str, split: str, fingerprint: str, open_cache: Callable[[str], EmbeddingCache]
) -> Iterator[dict[str, Any]]:
    """Every row; the arguments are all that decides them, so ``datasets`` knows them again.

    Raises:
        CacheError: another cache lies there by now.
    """
    cache = open_cache(root)
    plan = cache.plan
    if plan.fingerprint != fingerprint:
        raise CacheError("another cache lies there by now", where=root)
    part = cache[split]
    states = {embeddings_key(plan, name): part.pooled(name) for name in plan.pooling}
    columns = {name: part.column(name) for name in plan.columns}
    rows = _rows_at_a_time(plan)
    for start in range(0, len(part), rows):
        row_B = np.arange(start, min(start + rows, len(part)))
        read = {name: one[row_B] for name, one in states.items()}
        for place, row in enumerate(row_B.tolist()):
            yield {
                **{name: one[place] for name, one in read.items()},
                "label": int(part.labels[row]),
                "num_tokens": int(part.num_tokens[row]),
                **{name: values[row] for name, values in columns.items()},
            }
