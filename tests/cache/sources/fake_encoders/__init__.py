"""An encoder of a made-up kind of files, for tests; the folder is added to those of the package."""
