"""A run folder <-> RunResult."""
