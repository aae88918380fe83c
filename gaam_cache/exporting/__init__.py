"""A cache as a folder that others can take: nothing of this machine in it, a card beside it."""
