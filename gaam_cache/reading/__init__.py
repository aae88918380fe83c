"""Rows out of shard files, each of which is checked before its first row is used."""
