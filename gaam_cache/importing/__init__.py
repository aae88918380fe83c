"""States that others made become a cache: files or arrays in, shards out."""
