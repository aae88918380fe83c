"""A study: public commands in a row, what came out of them, and whether it comes out again."""

from __future__ import annotations

from gaam_decoder.studying.estimating import estimate
from gaam_decoder.studying.outcome import Outcome, carry_out
from gaam_decoder.studying.place import MACHINE, Place
from gaam_decoder.studying.recipe import Study, read_study

__all__ = [
    "MACHINE",
    "Outcome",
    "Place",
    "Study",
    "carry_out",
    "estimate",
    "read_study",
]
