"""What several mechanisms share: their base classes and functions.

A file in this folder is not a mechanism.
"""
