"""Sections over many data sets: each file in this folder makes one or more."""
