"""The positive control: a cache whose labels depend on the states through a known gate.

A teacher reads the states as a mechanism of ``attention/`` does, with parameters that are known;
a random linear head and a softmax say how probable every class is; labels are drawn from that. A
decoder of the same mechanism with a linear head can express the teacher exactly.
"""
