"""Who runs the pieces: leases of those that share a folder."""
