"""Reports on runs; a file in this folder is a format."""
