"""What a finished run attends to, and whether that matters."""
