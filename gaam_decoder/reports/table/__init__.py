"""What a report says: tables, their rows, and how they are made of runs."""
