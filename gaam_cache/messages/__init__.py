"""What is said: text from elsewhere made harmless, refusals in words."""
