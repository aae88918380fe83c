"""What a label is: in a table, in a program and on disk. One file for each target."""
