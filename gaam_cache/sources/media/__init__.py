"""Kinds of rows that lie in files of their own; a file in this folder is a kind."""
