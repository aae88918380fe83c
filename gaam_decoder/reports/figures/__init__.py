"""Pictures of results: pure functions from arrays to matplotlib figures.

They are drawn in the colours of ``style.PALETTE``; in HTML those become CSS variables, so that a
picture follows the page into dark mode. Nothing here reads a run or a file.
"""
