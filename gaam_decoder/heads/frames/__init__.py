"""What several fitted heads share."""
