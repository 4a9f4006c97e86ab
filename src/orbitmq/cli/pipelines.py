"""The command `pipeline`, whose jobs have their own flags; they need the extra `spark`."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.cli.endings import EXIT_USAGE, fail


def run(arguments: Sequence[str]) -> None:
    try:
        from orbitmq.pipeline.command import main
    except ImportError as error:
        fail("pipeline", f"the jobs need Spark: pip install 'orbitmq[spark]' ({error})", EXIT_USAGE)
    raise SystemExit(main(arguments))
