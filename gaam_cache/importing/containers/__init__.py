"""One file for each kind of file that arrays are read from; its suffixes are what it claims."""
