"""Sections of a report below its table: each file in this folder makes one or more."""

from gaam_decoder.reports.sections.base import (
    Section,
    Writer,
    answer_sentences,
    requested_sections,
    sections,
    signature,
)

__all__ = [
    "Section",
    "Writer",
    "answer_sentences",
    "requested_sections",
    "sections",
    "signature",
]
