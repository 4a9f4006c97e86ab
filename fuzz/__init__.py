"""Hostile bytes for every decoder: what each promises, an engine that looks for bytes that break it, what was found.

`targets` is the table; `streams`, `records`, `texts`, `admin`, `traces` and `disks` hold the promises; `engine` runs
one of them in a process of its own; `corpus` keeps what covers new ground. No part of the product.
"""
