"""How the fit of a head that is fitted at once is told."""

from __future__ import annotations

from typing import Any


def fit_in_words(fit: dict[str, Any]) -> str:
    """What a fit chose, such as ``C 2.0 chosen from 40 (0.0001 to 10,000)``."""
    text = f"{fit['setting']} {fit['value']:.3g} chosen from {fit['tried']} "
    text += f"({fit['lowest']:g} to {fit['highest']:g})"
    text += f", the {fit['edge']} of them" if fit.get("edge") else ""
    if lost := len(fit["unconverged"]):
        text += f", {lost} of which did not converge"
    return text
