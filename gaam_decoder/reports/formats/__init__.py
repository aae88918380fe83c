"""Report formats, one file each."""
