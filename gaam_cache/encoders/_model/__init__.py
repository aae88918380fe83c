"""What encoders of the transformers library have in common, whatever they read."""
