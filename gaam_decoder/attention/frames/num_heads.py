"""How many heads a mechanism has.

L layers.
"""

from gaam_cache.common.errors import ConfigError, check_option

DEFAULT_HEADS = 8
LEAST_LAYERS = 3
"""Least layers in the group of one head, where the number of heads is the default.

Of two layers, standardised values are 1 and -1, so that all densities are alike."""


def heads_over_layers(num_layers: int, heads: int | None) -> int:
    """The number of heads, which split the layers into equal groups of at least two.

    Args:
        num_layers: L.
        heads: the number that was asked for. None takes the largest divisor of L up to
            8 that leaves groups of three or more layers (40 -> 8, 24 -> 8, 12 -> 4,
            6 -> 2); of two layers it takes 1.

    Raises:
        ConfigError: fewer than two layers, or ``heads`` does not divide L, or leaves
            groups of one layer, which has no spread.
    """
    # groups have two layers at least
    valid = [n for n in range(1, num_layers // 2 + 1) if num_layers % n == 0]
    if not valid:
        raise ConfigError(
            "a density over layers needs at least two layers",
            expected="two layers or more",
            found=f"{num_layers} layer",
            hint="choose more --layers, or a mechanism for one layer, such as mha",
        )
    if heads is None:
        most_heads = min(DEFAULT_HEADS, num_layers // LEAST_LAYERS)
        return max((n for n in valid if n <= most_heads), default=1)

    numbers = ", ".join(map(str, valid))
    expected = f"one of: {numbers} ({num_layers} layers in equal groups)"
    check_option(heads in valid, "heads", heads, expected)
    return heads


def heads_over_features(hidden_size: int, heads: int | None) -> int:
    """Heads that split the features equally; None takes the largest divisor up to 8.

    Raises:
        ConfigError: ``heads`` does not divide the hidden size.
    """
    if heads is None:
        return max(n for n in range(1, DEFAULT_HEADS + 1) if hidden_size % n == 0)
    fits = heads >= 1 and hidden_size % heads == 0
    check_option(fits, "heads", heads, f"a divisor of the hidden size, {hidden_size}")
    return heads
