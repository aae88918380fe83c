"""What a model without weights makes of a length is worked out once."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def counts() -> dict[tuple[Any, ...], int]:
    """Positions of so many features, by all that decides them."""
    return {}


@pytest.fixture
def counted_once(
    counts: dict[tuple[Any, ...], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoders of sounds that are opened again count no positions that were counted before.

    A count is a function of the class of a model, its configuration and the input's shape; to run
    a model without memory for one takes a quarter of a second, and to open an encoder takes 16.
    """
    from gaam_cache.encoders.audio import _FrontEnd as FrontEnd

    count = FrontEnd._count_positions

    def counted(self: FrontEnd, part: Any, features: int) -> int:
        config = part.config.to_json_string(use_diff=False)
        shape = (self.input_name, *self._row_shape, features)
        key = (type(part), config, *shape)
        if key not in counts:
            counts[key] = count(self, part, features)
        return counts[key]

    monkeypatch.setattr(FrontEnd, "_count_positions", counted)
