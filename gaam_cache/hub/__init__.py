"""The hub of models and data sets: what comes from it, and what is exported and sent there."""
