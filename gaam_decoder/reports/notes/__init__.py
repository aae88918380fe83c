"""Words below and above a table, written from its numbers."""
