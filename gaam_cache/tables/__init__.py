"""Tables a piece at a time: all columns as they stand, what of each row is encoded, more columns.

Rows are read by the rules of ``gaam extract``: a file gives the same texts to both.
"""
