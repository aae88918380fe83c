"""The card of a cache or a decoder: the README.md that describes it on the hub.

``huggingface_hub`` writes the metadata, one template the text. Text from elsewhere is
escaped here: no name of a class or a data set becomes Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gaam_cache.common.markdown import items
from gaam_cache.common.messages import visible_values

CARD_FILE = "README.md"
TEMPLATE = Path(__file__).with_name("templates") / "card.md.jinja"


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """The parts of a card.

    The lists ``facts``, ``limits`` and ``subjects_to_license`` are plain lines and
    become Markdown lists. The other texts are Markdown.
    """

    kind: Literal["model", "dataset"]
    metadata: Mapping[str, Any]
    """Entries of the metadata; empty ones are left out."""
    entries_to_fill_in: Mapping[str, str]
    """Entries of the metadata that a person has to add, and what each means."""
    title: str
    summary: str
    facts: Sequence[str]
    classes_title: str
    classes: Sequence[str]
    """Lines of Markdown."""
    usage: str
    limits: Sequence[str]
    subjects_to_license: Sequence[str]
    """What has a licence that a person has to name: the data, the encoder."""
    evaluation: Sequence[str] = ()
    """Lines of Markdown."""

    def to_markdown(self) -> str:
        """The card as the text of a README.md, with its metadata at the top."""
        from huggingface_hub import (
            DatasetCard,
            DatasetCardData,
            ModelCard,
            ModelCardData,
        )

        # empty entries are left out; control characters of names become escapes
        metadata = {
            key: visible_values(value) for key, value in self.metadata.items() if value
        }
        parts = self._template_values()
        card: ModelCard | DatasetCard
        if self.kind == "model":
            card = ModelCard.from_template(ModelCardData(**metadata), **parts)
        else:
            card = DatasetCard.from_template(DatasetCardData(**metadata), **parts)
        return f"{str(card).rstrip()}\n"

    def _template_values(self) -> dict[str, Any]:
        """The path of the template, and the values that the template shows."""
        # a person must fill in what gaam cannot know
        todo_lines = [
            f"TODO: name the licence of {subject}"
            for subject in self.subjects_to_license
        ]
        todo_lines += [
            f"TODO: add '{name}' to the metadata above: {meaning}"
            for name, meaning in self.entries_to_fill_in.items()
        ]
        return {
            "template_path": str(TEMPLATE),
            "title": self.title,
            "summary": self.summary,
            "facts": items(self.facts),
            "classes_title": self.classes_title,
            "classes": self.classes,
            "evaluation": self.evaluation,
            "usage": self.usage,
            "limits": items(self.limits),
            "licences": items(todo_lines),
        }
