"""Bytes on disk: plan, shard, receipt; writing, reading, verifying, and states of others."""
