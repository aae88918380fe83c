"""Whether a cache on disk is what it says: every byte, every number, every row."""
