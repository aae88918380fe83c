"""Mechanisms x seeds -> runs."""
