"""Whole files of rows: predicted a piece at a time, kept as it goes on, published at once."""
