"""One self-contained page: tables, pictures, provenance. It asks nothing of any network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TextIO

import gaam_cache
from gaam_cache.format.digest import short_digest
from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.notes.claims import claims, conclusion
from gaam_decoder.reports.notes.notes import notes, warnings
from gaam_decoder.reports.notes.provenance import provenance
from gaam_decoder.reports.pictures.album import Album
from gaam_decoder.reports.table import final_models
from gaam_decoder.reports.table.base import SEPARATE, Format, Table
from gaam_decoder.reports.table.layout import MOST_LINES, MOST_ROWS, left_out, summarised
from gaam_decoder.reports.writing import learned_table, sheets
from gaam_decoder.reports.writing.numbers import percent
from gaam_decoder.reports.writing.page import STYLE, escape
from gaam_decoder.reports.writing.page_parts import figure, list_html, part, sheet_html
from gaam_decoder.reports.writing.section import Section, sections
from gaam_decoder.reports.writing.sheets import Sheet

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser is told to load nothing, even if a name in the data should contain an address."""

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
        album = Album(tables)
        if album.large:
            tables = summarised(tables, MOST_ROWS)
        parts = [table for table in tables if table.covered] if album.large else []
        tables = [table for table in tables if not (album.large and table.covered)]
        if len(tables) > 1:
            stream.write(f'<p class="warn">{len(tables)} separate tables: {SEPARATE}.</p><nav><ul>')
            for number, table in enumerate(tables, 1):
                stream.write(f'<li><a href="#t{number}">{escape(table.title())}</a></li>')
            stream.write("</ul></nav>")
        stream.write("</header>\n<main>\n")
        for number, table in enumerate(tables, 1):
            for text in _section(table, number, album):
                stream.write(text + "\n")
        if parts:
            bare = Album(parts, bare=True)
            inside = [
                text
                for number, table in enumerate(parts, len(tables) + 1)
                for text in _section(table, number, bare)
            ]
            heading = f"{len(parts)} tables of parts of these"
            stream.write(part(heading, "\n".join(inside), folded=True, key="parts") + "\n")
        stream.write(
            f'</main><footer class="muted">Made by gaam {gaam_cache.__version__} from finished '
            "runs; every number is computed from their test logits.</footer></body></html>\n"
        )


def _section(table: Table, number: int, album: Album) -> Iterator[str]:
    """A table; of a large report most of it folded."""
    large, key = album.large, f"t{number}"
    by_kind: dict[str, list[str]] = {}
    for count, picture in enumerate(album.of(table)):
        by_kind.setdefault(picture.kind, []).append(figure(picture, f"{key}p{count}"))
    yield f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(table.title())}</h2>'
    if lead := conclusion(table):
        yield f'<p class="lead">{escape(lead[0].upper() + lead[1:])}.</p>'
    if table.rows:
        yield _facts(table)
    yield from (f'<p class="warn">{escape(text)}</p>' for text in warnings(table))
    further = [] if album.bare else sections(table)
    if large and not album.bare:
        yield _links(further, key)
    whole = replace(table, shown=None) if large else table
    if table.rows:
        title = escape(table.unit.score.title)
        yield f"<h3{_id(key, 'accuracy', large)}>Test {title}</h3>"
        yield sheet_html(sheets.accuracies(table))
        if hidden := left_out(table):
            yield f'<p class="muted">{escape(hidden)}.</p>'
        if large and hidden:
            every = sheet_html(sheets.accuracies(whole))
            yield part(f"All {len(table.rows)} rows", every, folded=True)
    if final := final_models.lines(table):
        heading = f"{final_models.HEADING.capitalize()}"
        yield part(heading, list_html(final), folded=large and len(final) > MOST_LINES)
    if compared := sheets.differences(table):
        yield from _differences(table, whole, compared, key, large)
    yield _grid(by_kind, "accuracy", "differences")
    told = [_further(section, f"{key}s{place}", album) for place, section in enumerate(further)]
    if large:  # what a sweep is about stands before what explains it
        yield from told
    yield part("How to read this", list_html(notes(table)), folded=large, key=f"{key}notes")
    if "curves" in by_kind:
        yield part("Learning curves", _grid(by_kind, "curves"), folded=large)
    drawn = _drawn(table, album)
    if drawn and not large:
        yield drawn
    above = drawn if large else ""
    if "attention" in by_kind:
        found = above + _grid(by_kind, "attention")
        yield part("What the mechanisms attend to", found, folded=large)
    if learned := sheets.learned(whole):
        body = f"{sheet_html(learned)}\n{list_html(learned_table.notes(table.rows))}"
        body += above * ("learned" in by_kind) + _grid(by_kind, "learned")
        yield part("Learned parameters", body, folded=large)
    if "confusion" in by_kind:
        found = above + _grid(by_kind, "confusion")
        yield part("Confusion between classes", found, folded=large)
    if not large:
        yield from told
    yield part("Provenance", provenance(table), folded=large, key=f"{key}origin") + "</section>"


def _drawn(table: Table, album: Album) -> str:
    """Of which rows there are pictures, where not of all."""
    if len(table.rows) <= album.detailed or album.bare:
        return ""
    most = "most accurate" if album.detailed == 1 else f"{album.detailed} most accurate"
    below = f"The pictures below are of the {most} of {len(table.rows)} decoders."
    return f'<p class="muted">{below}</p>'


def _differences(
    table: Table, whole: Table, compared: Sheet, key: str, large: bool
) -> Iterator[str]:
    def found(of: Table) -> list[bool]:
        made = [of.comparisons[place] for place in of.places]
        return [comparison.claim.significant for comparison in made if comparison is not None]

    baseline = escape(brief(str(table.baseline)))
    yield f"<h3{_id(key, 'differences', large)}>Differences to {baseline}</h3>"
    in_words = list_html(claims(table)) or (
        f"<p>No claim: fewer than {stats.LEAST_SEEDS} paired seeds.</p>"
    )
    if not large:
        yield in_words
    yield sheet_html(compared, found(table))
    if large:
        if table.shown is not None and (every := sheets.differences(whole)) is not None:
            yield part(
                f"All {len(every.lines)} differences", sheet_html(every, found(whole)), folded=True
            )
        yield part("The same in words", in_words, folded=True)


def _id(key: str, name: str, large: bool) -> str:
    return f' id="{key}{name}"' if large else ""


def _links(further: Sequence[Section], key: str) -> str:
    """What stands below, for who does not want to look for it."""
    names = {"accuracy": "Test accuracy", "notes": "How to read this"}
    names |= {f"s{place}": section.heading for place, section in enumerate(further)}
    names |= {"origin": "Provenance"}
    links = (f'<a href="#{key}{name}">{escape(text)}</a>' for name, text in names.items())
    return f'<nav class="muted">{" | ".join(links)}</nav>'


def _further(section: Section, key: str, album: Album) -> str:
    heading = f"<h3>{escape(section.heading)}</h3>"
    body = "".join(sheet_html(sheet) for sheet in section.sheets)
    body += list_html(section.lines)
    body += f"<pre><code>{escape(section.verbatim)}</code></pre>" if section.verbatim else ""
    shown = album.taken(section.pictures)
    drawn = [figure(picture, f"{key}p{i}") for i, picture in enumerate(shown)]
    body += f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""
    if rest := len(section.pictures) - len(shown):
        body += f'<p class="muted">Not drawn, for there are many: {rest}. --figures has all.</p>'
    lead = f"<p>{escape(section.lead[0].upper() + section.lead[1:])}.</p>"
    name = _id(key, "", album.large)
    if section.folded and body and not section.verbatim:
        if album.large and not section.finding:
            return f"<details{name}><summary>{heading}</summary>{lead}{body}</details>"
        return f"<details{name}><summary>{heading}{lead}</summary>{body}</details>"
    heading = f"<h3{name}>{escape(section.heading)}</h3>"
    return f"{heading}{lead if album.first(lead) else ''}{body}"


def _facts(table: Table) -> str:
    fewest = min(len(row.scores.seeds) for row in table.rows)
    most = max(len(row.scores.seeds) for row in table.rows)
    facts = {
        "decoders": str(len(table.rows)),
        "seeds": str(most) if fewest == most else f"{fewest} to {most}",
        "test rows": f"{table.num_test_rows:,}",
        "majority class alone": f"{percent(table.majority_accuracy)}%",
        "epoch chosen by": ", ".join(sorted({brief(row.select, 40) for row in table.rows})),
        "cache": short_digest(table.cache["fingerprint"]),
    }
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="facts">{items}</dl>'


def _grid(by_kind: dict[str, list[str]], *kinds: str) -> str:
    found = [figure for kind in kinds for figure in by_kind.get(kind, ())]
    return f'<div class="figures">{"".join(found)}</div>' if found else ""
