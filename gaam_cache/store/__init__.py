"""A cache on disk: its plan and shards, how they are written and read."""
