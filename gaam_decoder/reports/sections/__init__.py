"""What a report says beyond accuracies and differences; a file in this folder is a section."""
