"""What an estimate takes for granted about machines that are not here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import check_at_least
from gaam_cache.errors import ConfigError
from gaam_cache.extraction.cards import CARDS, DEFAULT_CARD, DEFAULT_SHARE, Card
from gaam_cache.messages import option_of, shortened


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """Who will do the work of an extraction; nothing of this reaches a cache.

    Raises:
        ConfigError: on construction, when a value is out of its range, or two contradict.
    """

    workers: int = 1
    """How many will share the work."""
    assume_tokens_per_second: float | None = None
    """What one worker encodes; default: timed here, or from the card."""
    card: str | None = None
    """GPU of every worker: a name of ``cards``."""
    share: float | None = None
    """Of the card's peak that the encoder reaches, in (0, 1]; default: 0.4."""

    def __post_init__(self) -> None:
        """Refuse values that cannot be meant."""
        check_at_least(self, 1, "workers")
        rate = self.assume_tokens_per_second
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise ConfigError(
                "--assume-tokens-per-second is out of range", expected="> 0", found=f"{rate:g}"
            )
        if self.share is not None and not 0 < self.share <= 1:
            raise ConfigError(
                "--share is out of range",
                expected="a part of the card's peak: more than 0, at most 1",
                found=f"{self.share:g}",
            )
        if self.card is not None and self.card not in CARDS:
            raise ConfigError(
                "unknown --card",
                expected=f"one of: {', '.join(CARDS)}",
                found=shortened(self.card),
                hint="--assume-tokens-per-second says what another card does",
            )
        if rate is not None and (self.card or self.share):
            raise ConfigError(
                "a rate is assumed twice",
                expected="--assume-tokens-per-second, or --card and --share",
                found=f"--assume-tokens-per-second {rate:g} beside "
                + (f"--card {self.card}" if self.card else f"--share {self.share:g}"),
            )

    def on_card(self, config: ExtractConfig, *, gpu_here: bool) -> tuple[Card, float] | None:
        """The card and the share of its peak that the estimate rests on, if it does.

        Args:
            config: of the extraction.
            gpu_here: whether there is one to time batches on.

        Raises:
            ConfigError: a CPU is asked for, or the card lacks the arithmetic.
        """
        if self.assume_tokens_per_second is not None:
            return None
        if self.card is None and self.share is None and (gpu_here or config.device[:4] != "cuda"):
            return None
        if config.device == "cpu":
            raise ConfigError(
                "--card and --share are for GPUs",
                expected="--device cuda, or none",
                found="--device cpu",
            )
        card = CARDS[self.card or DEFAULT_CARD]
        if config.dtype != "auto" and config.dtype not in card.peaks:
            raise ConfigError(
                f"a {card.label} has no arithmetic in {config.dtype}",
                expected=f"--dtype {' or '.join(sorted(card.peaks))}",
                found=f"--dtype {config.dtype}",
            )
        return card, self.share or DEFAULT_SHARE


def assume(given: Mapping[str, Any], *, dry_run: bool) -> Assumptions:
    """The assumptions of a command line, which only a dry run makes.

    Args:
        given: fields of ``Assumptions``; None means not given.
        dry_run: whether it is one.

    Raises:
        ConfigError: a value that cannot be meant, or given where work is to be done.
    """
    named = {name: value for name, value in given.items() if value is not None}
    if named and not dry_run:
        options = " and ".join(f"{option_of(name)} {value}" for name, value in named.items())
        raise ConfigError(
            f"{' and '.join(map(option_of, named))}: for estimates only",
            expected="--dry-run beside it",
            found=options,
            hint="an extraction asks what is there; several share its work where each runs the "
            "same gaam extract"
            if "workers" in named
            else None,
        )
    return Assumptions(**named)
