"""Where else the curves of seeds go; a module here is a name for ``track``."""
