"""Names that terminals, spreadsheets, browsers and typesetters may obey."""

from __future__ import annotations

import unicodedata

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "clear the screen": "\x1b[2J\x1b[H",
    "title of the window": "\x1b]0;owned\x07",
    "link of a terminal": "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "device control": "\x1bP$q\x1b\\",
    "C1 sequence": "\x9b31mred",
    "C1 string": "\x9d0;owned\x9c",
    "every C0 and C1": "".join(map(chr, [*range(1, 32), *range(127, 160)])),
    "NUL": "a\0b",
    "carriage return": "99.9%\rspoof",
    "bell and backspace": "a\a\b\b\bz",
    "line feed": "a\nerror: all is lost\n  to do:    run this",
    "vertical tab and form feed": "a\vb\fc",
    "next line, line and paragraph separator": "a\u0085b\u2028c\u2029d",
    "right to left override": "\u202egnp.exe",
    "isolates": "\u2066\u2067\u2068a\u2069",
    "marks of direction": "\u200e\u200fa\u061c",
    "Arabic": "\u0639\u0631\u0628\u064a",
    "Hebrew with points": "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "Chinese": "\u4e2d\u6587\u540d\u5b57",
    "width zero": "a\u200bb\u200cc\u2060d\u00ade",
    "byte order mark": "\ufeffa",
    "fillers": "a\u3164b\u115fc\uffa0",
    "variation selectors": "a\ufe0f\U000e0100",
    "tags": "a\U000e0041\U000e0042",
    "high surrogate": "a\ud83d",
    "low surrogate": "\ude00a",
    "undecodable byte of a path": "a\udcff",
    "not characters": "\ufffe\uffff\U0001fffe\ufdd0",
    "private use": "\ue000\U000f0000",
    "a thousand marks": "a" + "\u0301" * 1000,
    "enclosing marks": "a" + "\u20dd" * 50,
    "emoji of a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "10 kB": "long" * 2500,
    "10 kB of words": "a word " * 1500,
    "formula of a spreadsheet": "=cmd|' /C calc'!A0",
    "function of a spreadsheet": "@SUM(A1:A9)",
    "plus": "+1",
    "minus": "-1+cmd|' /C calc'!A0",
    "tab and a formula": "\t=1+1",
    "formula after a semicolon": 'a";=HYPERLINK("http://evil.example","x")',
    "full-width formula": "\uff1dcmd|' /C calc'!A0",
    "quotes and commas": 'a","b\',\'c"',
    "pipes": "a|b||c\\|d",
    "link": "[x](javascript:alert(1))",
    "image": "![x](http://evil.example/x.png)",
    "reference and footnote": "[x]: http://evil.example [^1]",
    "bare addresses": "http://evil.example www.evil.example HTTPS://EVIL.example me@evil.example",  # noqa: E501
    "mention and issue": "@everyone #1 evil/evil#2",
    "heading": "# heading",
    "list": "- item",
    "numbered list": "1. item",
    "rule": "---",
    "quote": "> quote",
    "emphasis": "**a** _b_ ~~c~~ `d` ***",
    "fence": "```sh",
    "spaces": "    code    ",
    "backslashes": "\\\\ \\n \\",
    "script": "<script>alert(1)</script>",
    "attribute": '" onmouseover="alert(1)" x=\'',
    "comment and section": "<!-- --> ]]> <![CDATA[",
    "entities": "&lt;b&gt; &#x202e; &amp;",
    "file of LaTeX": "\\input{/etc/passwd}",
    "command of LaTeX": "\\immediate\\write18{id} \\end{tabular}",
    "special in LaTeX": "# $ % & ~ _ ^ \\ { } -- ,, `` ''",
    "mathematics": "$\\alpha_{1}$ \\(x\\)",
    "half of mathematics": "$\\frac{",
    "percent": "%",
    "template": "{{7*7}} {% raw %} ${x}",
    "format strings": "%s %n %(x)s {0} {x!r} {",
    "markup": "[red]a[/red] [/] [link=http://evil.example]x[/link] [@click=app.quit]",
    "emoji code": ":red_circle: :smile:",
    "nothing but white space": " \u00a0\u2003 ",
    "no name at all": "",
}
"""A description of the name -> the name."""
HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of Unicode that a terminal may obey, or that nobody sees."""


def harmful(text: str, *, keep: str = "\n") -> set[str]:
    """The characters of a text that a terminal may obey, or that nobody sees."""
    return {
        character
        for character in text
        if character not in keep and unicodedata.category(character) in HARMFUL
    }


def flooded(text: str) -> bool:
    """Whether more than four marks are piled up on a letter."""
    marks = 0
    for character in text:
        is_mark = unicodedata.category(character) in ("Mn", "Me")
        marks = marks + 1 if is_mark else 0
        if marks > 4:
            return True
    return False
