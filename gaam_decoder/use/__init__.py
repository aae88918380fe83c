"""What a finished run is used for: predictions on new rows."""
