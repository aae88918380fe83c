"""The parts of the encoder of sounds."""
