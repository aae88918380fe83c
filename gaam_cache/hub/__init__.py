"""The hub of models and data sets, and its errors in words."""
