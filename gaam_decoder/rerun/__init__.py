"""From a run, or the signature of a report, back to the commands that give it."""
