"""A study of many data sets and encoders: its recipe, its records and its page."""
