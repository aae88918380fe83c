"""The single pass: rows in, pooled states of every layer out."""
