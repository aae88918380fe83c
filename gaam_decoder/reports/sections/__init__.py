"""What a report says beyond its table; a file in this folder makes one section or two."""

from gaam_decoder.reports.sections.base import (
    Section,
    Writer,
    answers,
    sections,
    sections_of,
    signature,
)

__all__ = ["Section", "Writer", "answers", "sections", "sections_of", "signature"]
