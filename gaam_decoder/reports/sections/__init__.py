"""What a report says beyond its table; a file in this folder makes one section or two."""
