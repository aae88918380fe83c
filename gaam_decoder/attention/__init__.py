"""Attention over encoder layers; a file in this folder is a mechanism."""
