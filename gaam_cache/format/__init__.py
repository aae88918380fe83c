"""Bytes on disk: plan, receipt, shard, and the one way to write and read a file."""
