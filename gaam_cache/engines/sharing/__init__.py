"""Workers that share a folder: who they are, who works on what, and who is still there."""
