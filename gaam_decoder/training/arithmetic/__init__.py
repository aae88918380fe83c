"""A training step: what computes it, compiled or not, for seeds together."""
