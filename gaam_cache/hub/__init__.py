"""Export caches, and send them to the hub of models and data sets."""
