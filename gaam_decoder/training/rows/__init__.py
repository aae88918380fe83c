"""Which rows learn, select and test, and how they get to the device."""
