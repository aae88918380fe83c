"""Frozen encoders; a file in this folder is a kind of encoder."""
