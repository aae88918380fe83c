"""What makes a step of gradients, of parameters that are stacked over seeds; one file each."""
