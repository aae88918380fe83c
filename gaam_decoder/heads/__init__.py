"""Classifier heads; a file in this folder is a head."""
