"""What a report says beyond its table; a file in this folder makes one section or two."""

from gaam_decoder.reports.sections._base import Section, Writer, sections, signature

__all__ = ["Section", "Writer", "sections", "signature"]
