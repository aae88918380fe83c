"""One self-contained page: tables, pictures, provenance. It asks nothing of any network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TextIO

import gaam_cache
from gaam_cache.messages.foreign_text import brief, visible
from gaam_decoder import stats
from gaam_decoder.reports import _finals, _learned, _sheets
from gaam_decoder.reports._base import SEPARATE, Format, Table
from gaam_decoder.reports._claims import claims, conclusion
from gaam_decoder.reports._notes import notes, versions, warnings
from gaam_decoder.reports._numbers import percent
from gaam_decoder.reports._page import STYLE, escape
from gaam_decoder.reports._picture import Picture
from gaam_decoder.reports._pictures import DETAILED, pictures
from gaam_decoder.reports._section import Section, sections
from gaam_decoder.reports._sheets import Sheet
from gaam_decoder.reports.figures.output import inline_svg

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser is told to load nothing, even if a name in the data should contain an address."""

MOST_NAMES = 100
"""Classes that are listed."""

ALIASES = ("htm", "web")


class Html(Format):
    """A page for a phone, a screen and paper, light and dark."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the page."""
        title = "gaam report"
        stream.write(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f'<link rel="icon" href="data:,"><title>{title}</title>'
            f"<style>{STYLE}</style></head>\n<body><header><h1>{title}</h1>\n"
        )
        if len(tables) > 1:
            stream.write(f'<p class="warn">{len(tables)} separate tables: {SEPARATE}.</p><nav><ul>')
            for number, table in enumerate(tables, 1):
                stream.write(f'<li><a href="#t{number}">{escape(table.title())}</a></li>')
            stream.write("</ul></nav>")
        stream.write("</header>\n<main>\n")
        for number, table in enumerate(tables, 1):
            for part in _section(table, number):
                stream.write(part + "\n")
        stream.write(
            f'</main><footer class="muted">Made by gaam {gaam_cache.__version__} from finished '
            "runs; every number is computed from their test logits.</footer></body></html>\n"
        )


def _section(table: Table, number: int) -> Iterator[str]:
    by_kind: dict[str, list[str]] = {}
    for count, picture in enumerate(pictures(table)):
        by_kind.setdefault(picture.kind, []).append(_figure(picture, f"t{number}p{count}"))
    yield f'<section aria-labelledby="t{number}"><h2 id="t{number}">{escape(table.title())}</h2>'
    if lead := conclusion(table):
        yield f'<p class="lead">{escape(lead[0].upper() + lead[1:])}.</p>'
    if table.rows:
        yield _facts(table)
    yield from (f'<p class="warn">{escape(text)}</p>' for text in warnings(table))
    if table.rows:
        yield "<h3>Test accuracy</h3>"
        yield _sheet(_sheets.accuracies(table), [False] * len(table.rows))
    if final := _finals.lines(table):
        yield f"<h3>{_finals.HEADING.capitalize()}</h3>{_list(final)}"
    compared = _sheets.differences(table)
    if compared:
        made = [comparison for comparison in table.comparisons if comparison is not None]
        found = [comparison.claim.significant for comparison in made]
        yield f"<h3>Differences to {escape(brief(str(table.baseline)))}</h3>"
        yield _list(claims(table)) or (
            f"<p>No claim: fewer than {stats.LEAST_SEEDS} paired seeds.</p>"
        )
        yield _sheet(compared, found)
    yield _grid(by_kind, "accuracy", "differences")
    yield "<h3>How to read this</h3>" + _list(notes(table))
    if "curves" in by_kind:
        yield "<h3>Learning curves</h3>" + _grid(by_kind, "curves")
    if len(table.rows) > DETAILED:
        yield (
            f'<p class="muted">The pictures below are of the {DETAILED} most accurate of '
            f"{len(table.rows)} decoders.</p>"
        )
    if "attention" in by_kind:
        yield "<h3>What the mechanisms attend to</h3>" + _grid(by_kind, "attention")
    learned = _sheets.learned(table)
    if learned:
        yield "<h3>Learned parameters</h3>" + _sheet(learned, [False] * len(learned.lines))
        yield _list(_learned.notes(table.rows)) + _grid(by_kind, "learned")
    if "confusion" in by_kind:
        yield "<h3>Confusion between classes</h3>" + _grid(by_kind, "confusion")
    for place, section in enumerate(sections(table)):
        yield _further(section, f"t{number}s{place}")
    yield "<h3>Provenance</h3>" + _provenance(table) + "</section>"


def _further(section: Section, key: str) -> str:
    heading = f"<h3>{escape(section.heading)}</h3>"
    body = "".join(_sheet(sheet, [False] * len(sheet.lines)) for sheet in section.sheets)
    body += _list(section.lines)
    body += f"<pre><code>{escape(section.verbatim)}</code></pre>" if section.verbatim else ""
    drawn = [_figure(picture, f"{key}p{i}") for i, picture in enumerate(section.pictures)]
    body += f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""
    lead = escape(section.lead[0].upper() + section.lead[1:])
    if section.folded and body and not section.verbatim:
        return f"<details><summary>{heading}<p>{lead}.</p></summary>{body}</details>"
    return f"{heading}<p>{lead}.</p>{body}"


def _facts(table: Table) -> str:
    fewest = min(len(row.scores.seeds) for row in table.rows)
    most = max(len(row.scores.seeds) for row in table.rows)
    facts = {
        "decoders": str(len(table.rows)),
        "seeds": str(most) if fewest == most else f"{fewest} to {most}",
        "test rows": f"{table.num_test_rows:,}",
        "majority class alone": f"{percent(table.majority_accuracy)}%",
        "epoch chosen by": ", ".join(sorted({brief(row.select, 40) for row in table.rows})),
        "cache": table.cache["fingerprint"][:12],
    }
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="facts">{items}</dl>'


def _breakable(name: str) -> str:
    """A name that a narrow column may break where one option ends and the next begins.

    And somewhere in a word that is longer than any of ours.
    """
    parts = re.findall("[^:=,]{1,24}[:=,]?|[:=,]", visible(name))
    return "<wbr>".join(map(escape, parts))


def _sheet(sheet: Sheet, found: Sequence[bool]) -> str:
    caption = escape(sheet.caption[0].upper() + sheet.caption[1:])
    head = "".join(
        f'<th scope="col"{_word(name, sheet)}>{escape(name)}</th>' for name in sheet.header
    )
    body = []
    for line, marked in zip(sheet.lines, found, strict=True):
        cells = [f'<th scope="row">{_breakable(line[0])}</th>']
        cells += [
            f"<td{_word(name, sheet)}>{escape(cell)}</td>"
            for name, cell in zip(sheet.header[1:], line[1:], strict=True)
        ]
        body.append(f"<tr{' class=found' if marked else ''}>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table>'
        f'<caption class="hidden">{caption}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _word(name: str, sheet: Sheet) -> str:
    return ' class="word"' if name in sheet.words else ""


def _figure(picture: Picture, key: str) -> str:
    svg = inline_svg(picture.draw, key=key, alt=picture.alt)
    return (
        f"<figure><h4>{escape(picture.title)}</h4>{svg}"
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _grid(by_kind: dict[str, list[str]], *kinds: str) -> str:
    found = [figure for kind in kinds for figure in by_kind.get(kind, ())]
    return f'<div class="figures">{"".join(found)}</div>' if found else ""


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if lines else ""


def _provenance(table: Table) -> str:
    cache = table.cache
    facts = {
        "data set": brief(cache["dataset"]),
        "encoder": brief(cache["encoder"]),
        "classes": _listed(cache["class_names"]),
        "cache fingerprint": cache["fingerprint"],
        "made with": f"{versions(table)}; report by gaam {gaam_cache.__version__}",
        **_recipes(table),
        "runs": ", ".join(brief(run.path.name) for run in _finals.all_runs(table)),
    }
    rows = "".join(
        f'<tr><th scope="row">{_breakable(name)}</th>'
        f'<td class="word long">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return (
        '<div class="scroll" role="region" tabindex="0" aria-label="Provenance"><table>'
        '<caption class="hidden">Where these numbers come from</caption>'
        '<thead><tr><th scope="col" class="word">what</th><th scope="col" class="word">value</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _recipes(table: Table) -> dict[str, str]:
    """What all rows share, and for each row what it has otherwise."""
    found = [row.recipe for row in table.rows] + [final.recipe for final in table.finals]
    recipes = [{k: v for k, v in recipe.items() if v is not None} for recipe in found]
    shared = {
        key: value
        for key, value in recipes[0].items()
        if all(key in recipe and recipe[key] == value for recipe in recipes)
    }
    spelt = {"recipe": _spell(shared)}
    labels = [*table.labels(), *(f"the final model {final.label}" for final in table.finals)]
    for label, recipe in zip(labels, recipes, strict=True):
        if own := {key: value for key, value in recipe.items() if key not in shared}:
            spelt[f"recipe of {label}"] = _spell(own)
    return spelt


def _spell(recipe: dict[str, object]) -> str:
    return ", ".join(brief(f"{key}={value}") for key, value in recipe.items())


def _listed(names: Sequence[str]) -> str:
    """Names, or the first of very many."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(brief(name, 60) for name in names[:MOST_NAMES]) + more
