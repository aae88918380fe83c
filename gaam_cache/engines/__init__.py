"""Who runs the pieces: workers on this machine, on a cluster, or ranks that others started.

An engine places workers, starts them again when they die, and passes on what they say. It carries
no rows, states or weights, and has no say in what is done: a shard or a seed exists when its
receipt or its run does, whoever made it. One file is one engine.
"""
