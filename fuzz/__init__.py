"""Hostile input for every decoder: the promises of each, an engine that searches for breaking input, the findings.

`targets` is the table; `streams`, `records`, `texts`, `admin`, `traces` and `disks` hold the promises; `engine` runs
one of them in a process of its own; `corpus` keeps inputs that reach new code. Not part of the product.
"""
