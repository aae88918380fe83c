"""Formats of a report: each file in this folder defines one."""
