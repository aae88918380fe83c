"""How many heads a mechanism has where nobody says."""

from gaam_cache.common.errors import ConfigError, check_option

DEFAULT_HEADS = 8
LEAST_LAYERS = 3
"""Of a head where nobody says: over two, standardised values are 1 or -1 and densities alike."""


def heads_over_layers(num_layers: int, heads: int | None) -> int:
    """Heads that split the layers into equal groups of at least two.

    Args:
        num_layers: L.
        heads: the number asked for; None takes the largest divisor of L up to 8 that leaves groups
            of three or more layers (40 -> 8, 24 -> 8, 12 -> 4, 6 -> 2), and 1 where there is none.

    Raises:
        ConfigError: ``heads`` does not divide L, or leaves one layer per group, whose spread is
            zero.
    """
    valid = [n for n in range(1, num_layers // 2 + 1) if num_layers % n == 0]
    if not valid:
        raise ConfigError(
            "a density over layers needs at least two of them",
            expected="two layers or more",
            found=f"{num_layers} layer",
            hint="name more with --layers, or choose a mechanism that can do with one, such as mha",
        )
    if heads is None:
        fit = (
            n for n in valid if n <= DEFAULT_HEADS and num_layers // n >= LEAST_LAYERS
        )
        return max(fit, default=1)
    expected = (
        f"one of: {', '.join(map(str, valid))} ({num_layers} layers in equal groups)"
    )
    check_option(heads in valid, "heads", heads, expected)
    return heads


def heads_over_features(hidden_size: int, heads: int | None) -> int:
    """Heads that split the hidden size equally; None takes the largest divisor up to 8.

    Raises:
        ConfigError: ``heads`` does not divide the hidden size.
    """
    if heads is None:
        return max(n for n in range(1, DEFAULT_HEADS + 1) if hidden_size % n == 0)
    fits = heads >= 1 and hidden_size % heads == 0
    check_option(fits, "heads", heads, f"a divisor of the hidden size, {hidden_size}")
    return heads
