"""From the files of a data set to its rows: layouts, readers, cells, labels, limits."""
