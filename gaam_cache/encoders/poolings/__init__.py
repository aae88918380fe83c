"""How a layer's token states become one vector; a file in this folder is a pooling."""
