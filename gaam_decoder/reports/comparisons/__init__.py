"""Rows against rows, the linear probe and the literature."""
