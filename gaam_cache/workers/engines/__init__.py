"""Engines that start workers: one file each, which `--engine` names."""
