"""`python -m orbitmq.pipeline NAME ...`, and the program for spark-submit."""

from __future__ import annotations

import sys

from orbitmq.pipeline.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
