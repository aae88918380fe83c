"""How sounds are read."""
