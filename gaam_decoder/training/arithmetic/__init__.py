"""A training step of several seeds, compiled or not."""
