"""Losses; a file in this folder is a loss."""
