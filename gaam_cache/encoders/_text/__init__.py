"""What a text encoder of the transformers library is made of."""
