"""How tables become text, pages and files, whatever the format."""
