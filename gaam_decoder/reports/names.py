"""The names of entries in a table, with the settings that tell them apart."""

from collections.abc import Sequence
from dataclasses import replace

from gaam_cache.common.messages import brief
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports import compare
from gaam_decoder.reports.entries import Entry

AT_EDGE = " (edge)"
# settings that the name of an entry spells in words of their own
SPELLED_IN_NAME = {"select", "allow_train_as_test", "shuffle_labels"}


def name_entries(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries with short names, and with the settings in which they differ."""
    names_heads = len({entry.head for entry in entries if not entry.fitted}) > 1
    settings = _settings_to_show(entries)
    names = [_name_of(entry, names_heads or entry.fitted) for entry in entries]

    named_entries = []
    labels = []
    for entry, name in zip(entries, names, strict=True):
        spelled = _spell_settings(entry, settings, entries)
        marked = []
        for setting, text in spelled.items():
            marked.append(text + AT_EDGE if setting in entry.at_edge else text)
        named_entries.append(replace(entry, name=name, settings=", ".join(marked)))

        # a name that several entries have needs the settings behind it
        label = name
        if names.count(name) > 1:
            label = f"{name} {', '.join(spelled.values())}".strip()
        labels.append(label)
    return tuple(
        replace(entry, label=label)
        for entry, label in zip(named_entries, compare.numbered(labels), strict=True)
    )


def _settings_to_show(entries: Sequence[Entry]) -> list[str]:
    """Settings that were tuned or differ between entries, sorted."""
    tuned = {
        name for entry in entries for tuning in entry.tunings for name in tuning.names
    }
    known_names = {name for entry in entries for name in entry.recipe} - SPELLED_IN_NAME
    return [
        name for name in sorted(known_names) if name in tuned or _varies(name, entries)
    ]


def _varies(setting: str, entries: Sequence[Entry]) -> bool:
    """Whether entries differ in a setting, among those in which it plays a part."""
    values = set()
    for entry in entries:
        if setting in entry.recipe or setting in DRAWN_BY or not entry.fitted:
            values.add(str(entry.recipe.get(setting)))
    return len(values) > 1


def _name_of(entry: Entry, with_head: bool) -> str:
    name = brief(entry.attention)
    if with_head:
        name += f" + {brief(entry.head, 60)}"
    if entry.shuffled:
        name += " labels shuffled"
    if entry.select != "val":
        name += f" select={entry.select}"
    return name


def _spell_settings(
    entry: Entry, settings: Sequence[str], entries: Sequence[Entry]
) -> dict[str, str]:
    """The settings of an entry in words, by their names.

    The code of a mechanism is among them where it differs between entries.
    """
    spelled = {}
    for name in settings:
        value = entry.recipe.get(name)
        if value is not None:
            spelled[name] = brief(f"{name}={value}")
    codes = {
        other_entry.code
        for other_entry in entries
        if other_entry.attention == entry.attention
    }
    if len(codes) > 1:
        spelled["code"] = entry.code
    return spelled
