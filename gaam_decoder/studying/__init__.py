"""A study: public commands in a row, what came out of them, and whether it comes out again."""

from __future__ import annotations

from gaam_decoder.studying.outcome import Outcome, carry_out, costs_in_words, costs_values
from gaam_decoder.studying.recipe import Study, read_study
from gaam_decoder.studying.running import Place, estimate

__all__ = [
    "Outcome",
    "Place",
    "Study",
    "carry_out",
    "costs_in_words",
    "costs_values",
    "estimate",
    "read_study",
]
