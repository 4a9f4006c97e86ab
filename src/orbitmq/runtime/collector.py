"""Python's collector of garbage, in a process that answers to others: a full collection looks at every object that was
ever loaded, some 20 ms in which nothing else happens.
"""

from __future__ import annotations

import gc

# Collect the youngest generation after this many new containers, instead of Python's 700: a loaded broker creates that
# many in a millisecond, and reference counting frees nearly all of them.
THRESHOLDS = (50_000, 50, 100)


def settle() -> None:
    """Leave what has been loaded so far out of all collections, and collect the rest less often. For programs, not for
    libraries: it concerns the whole process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
