"""Tables in files; a file in this folder is a format, and its name the suffix."""
