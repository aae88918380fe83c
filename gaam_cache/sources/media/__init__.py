"""What rows are that lie in files of their own; a file in this folder is a kind of them."""
