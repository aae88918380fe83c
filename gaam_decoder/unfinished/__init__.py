"""Work of a training that is not finished: whose it is, what it has so far."""
