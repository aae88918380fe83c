"""A finished run at work: on further rows, and for others."""
