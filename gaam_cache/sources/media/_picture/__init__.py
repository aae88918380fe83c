"""Pictures: what files of them promise, and what comes out of the decoder."""
