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
    """Set ``name``, ``settings`` and ``label`` of every entry.

    The name is the mechanism, with the head where heads differ. The settings are those
    that were tuned or that differ. The label is unique: the name, with the settings
    where several entries have the same name.
    """
    # a head that is fitted at once is always named
    trained_heads = {entry.head for entry in entries if not entry.fitted_at_once}
    has_several_heads = len(trained_heads) > 1
    settings = _settings_to_show(entries)
    names = [
        _name_of(entry, with_head=has_several_heads or entry.fitted_at_once)
        for entry in entries
    ]

    named_entries = []
    labels = []
    for entry, name in zip(entries, names, strict=True):
        text_by_setting = _spell_settings(entry, settings, entries)
        marked_texts = []
        for setting, text in text_by_setting.items():
            mark = AT_EDGE if setting in entry.settings_at_edge else ""
            marked_texts.append(f"{text}{mark}")
        settings_text = ", ".join(marked_texts)
        named_entries.append(replace(entry, name=name, settings=settings_text))

        # a name that several entries have needs the settings behind it
        label = name
        if names.count(name) > 1:
            label = f"{name} {', '.join(text_by_setting.values())}".strip()
        labels.append(label)

    # entries with the same name and settings get a number
    unique_labels = compare.number_repeated(labels)
    return tuple(
        replace(entry, label=label)
        for entry, label in zip(named_entries, unique_labels, strict=True)
    )


def _settings_to_show(entries: Sequence[Entry]) -> list[str]:
    """Settings that were tuned or differ between entries, sorted."""
    tuned = {
        name for entry in entries for tuning in entry.tunings for name in tuning.names
    }
    names = {name for entry in entries for name in entry.recipe} - SPELLED_IN_NAME
    return [name for name in sorted(names) if name in tuned or _varies(name, entries)]


def _varies(setting: str, entries: Sequence[Entry]) -> bool:
    """Whether entries differ in a setting.

    A head that is fitted at once has no epochs or learning rate: it counts only for the
    settings of its own recipe, and for those that draw training rows.
    """
    values = set()
    for entry in entries:
        if setting in entry.recipe or setting in DRAWN_BY or not entry.fitted_at_once:
            values.add(str(entry.recipe.get(setting)))
    return len(values) > 1


def _name_of(entry: Entry, *, with_head: bool) -> str:
    """The mechanism of an entry, with its head on request.

    Shuffled labels, and a selection of the epoch other than by validation, are named.
    """
    name = brief(entry.attention)
    if with_head:
        name += f" + {brief(entry.head, 60)}"
    if entry.labels_shuffled:
        name += " labels shuffled"
    if entry.select != "val":
        name += f" select={entry.select}"
    return name


def _differing_code(entry: Entry, entries: Sequence[Entry]) -> dict[str, str]:
    """User-defined parts of an entry, such as an optimizer, whose code differs.

    Returns:
        Name of such a part -> its name with its file and the digest of its code.
    """
    texts = {}
    for part, code in entry.recipe.get("plugins", {}).items():
        # an entry without the part has no other code of it
        codes = {
            other_entry.recipe.get("plugins", {}).get(part, code)
            for other_entry in entries
        }
        if len(codes) > 1:
            texts[part] = f"{part} of {code}"
    return texts


def _spell_settings(
    entry: Entry, settings: Sequence[str], entries: Sequence[Entry]
) -> dict[str, str]:
    """The texts of an entry's settings, such as ``lr=0.001``, by name of the setting.

    Mechanisms of one name, or other parts of one name, may be different files of a
    plugin. Then a text names the file and its digest.

    Args:
        entry: the entry.
        settings: names of the settings to spell.
        entries: all entries of the table.
    """
    texts: dict[str, str] = {}
    for name in settings:
        value = entry.recipe.get(name)
        # other settings name these parts already: only code that differs is added
        if name == "plugins":
            texts |= _differing_code(entry, entries)
        elif value is not None:
            texts[name] = brief(f"{name}={value}")
    codes = {
        other_entry.code
        for other_entry in entries
        if other_entry.attention == entry.attention
    }
    if len(codes) > 1:
        texts["code"] = entry.code
    return texts
