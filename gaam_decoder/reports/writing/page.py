"""The style sheet of the HTML report, its colours, and how text gets into it."""

from __future__ import annotations

import html

from gaam_cache.messages import visible
from gaam_decoder.reports.figures.style import PALETTE

LIGHT = {
    **PALETTE,
    "paper": "#ffffff",
    "panel": "#f6f8fa",
    "warn": "#8a3b00",
    "warn-paper": "#fff4e5",
}
DARK = {
    "ink": "#e6edf3",
    "muted": "#a5b0bb",
    "rule": "#38414b",
    "accent": "#79b8ff",
    "c0": "#6cb2f5",
    "c1": "#ff9f6b",
    "c2": "#56d0a0",
    "c3": "#d9a0e6",
    "c4": "#e0c050",
    "c5": "#ff8fbf",
    "c6": "#b6c0cc",
    "c7": "#5fd0e0",
    "paper": "#0f1419",
    "panel": "#171e26",
    "warn": "#ffc27a",
    "warn-paper": "#2f2312",
}
"""The same names in the dark; a test checks the contrast of both."""


def escape(text: str) -> str:
    """Text from anywhere as text of a page or in an attribute of it."""
    return html.escape(visible(text))


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


STYLE = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
    f"@media print{{:root{{color-scheme:light;{_variables(LIGHT)}}}}}"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;padding:1rem 1rem 3rem;max-width:78rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1,h2,h3,h4,p,li,dd,figcaption,td.long{overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.25rem;line-height:1.3;margin:2.2rem 0 .6rem;padding-top:1rem;
border-top:2px solid var(--ink)}
h3{font-size:1.05rem;margin:1.8rem 0 .5rem}
h4{font-size:.95rem;margin:.8rem 0 .3rem}
p,ul,dl{margin:.4rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;background:var(--panel);
padding:.5rem .7rem;border-radius:.4rem}
details{margin:1rem 0;border-top:1px solid var(--rule)}
summary{cursor:pointer}
summary h3{display:inline;margin:0}
summary p{margin:.2rem 0 .4rem 1.1rem;color:var(--muted)}
summary:focus-visible{outline:3px solid var(--accent)}
ul{padding-left:1.2rem}
a{color:var(--accent)}
.muted,figcaption,caption{color:var(--muted);font-size:.875rem}
.warn{background:var(--warn-paper);color:var(--warn);border-left:4px solid var(--warn);
padding:.5rem .8rem;margin:.5rem 0;font-weight:600}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.6rem;padding:0}
.facts div{background:var(--panel);padding:.5rem .7rem;border-radius:.4rem}
.facts dt{font-size:.8rem;color:var(--muted)}
.facts dd{margin:0;font-weight:600}
.scroll{overflow-x:auto;border:1px solid var(--rule);border-radius:.4rem;margin:.5rem 0}
.scroll:focus-visible{outline:3px solid var(--accent)}
caption.hidden{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
table{border-collapse:collapse;width:100%;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.5rem .7rem;caption-side:top}
th,td{padding:.35rem .55rem;text-align:right;white-space:nowrap;border-top:1px solid var(--rule)}
thead th{color:var(--muted);font-weight:600;border-top:0;vertical-align:bottom;
white-space:normal;min-width:3.6rem}
th.word,td.word{text-align:left}
tbody th{font-weight:600;position:sticky;left:0;background:var(--paper);text-align:left}
tr.found td{font-weight:600}
td.long{white-space:normal;min-width:12rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));
gap:1rem 2rem;align-items:start}
figure{margin:.5rem 0;break-inside:avoid;max-width:30rem}
figure svg{display:block;width:100%;height:auto;stroke-linejoin:round;stroke-linecap:butt}
figure svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",
sans-serif!important}
footer{margin-top:3rem;border-top:1px solid var(--rule);padding-top:.6rem}
@media (max-width:30rem){body{padding:.6rem .6rem 2rem}th,td{padding:.35rem .5rem}
tbody th{max-width:8.5rem;min-width:5.5rem;white-space:normal}td.long{min-width:0}}
@media print{@page{margin:14mm}figcaption,caption{font-size:7.5pt}h2{font-size:13pt}
thead th{min-width:0}
body{max-width:none;padding:0;font-size:9pt}
.scroll{overflow:visible;border:0}table{font-size:6.5pt}th,td{padding:.12rem .25rem;
white-space:normal}
tbody th{position:static}h2,h3,h4{break-after:avoid}tr{break-inside:avoid}
.figures{grid-template-columns:1fr 1fr}figure{max-width:none}a{color:inherit}}
"""
).replace("\n", "")
