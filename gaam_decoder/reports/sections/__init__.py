"""Sections of a report below its table: each file in this folder makes one or more."""

from gaam_decoder.reports.sections.base import (
    Section,
    Writer,
    answers,
    sections,
    sections_of,
    signature,
)

__all__ = ["Section", "Writer", "answers", "sections", "sections_of", "signature"]
