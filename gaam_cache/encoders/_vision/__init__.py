"""What it takes to read pictures: their way into a model, and where their patches are in it."""
