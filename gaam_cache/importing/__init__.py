"""Import states that other programs computed."""
