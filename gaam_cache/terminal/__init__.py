"""What the command line needs and a library does not."""
