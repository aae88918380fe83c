"""What several mechanisms share: base classes and functions; no file is a mechanism."""
