"""Flags that daemons share. Light: typer is all it imports."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

PrintConfig = Annotated[
    bool, typer.Option("-p", "--print-config", help="Print the effective configuration as a properties file and exit.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="Log this level and above, to standard error.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override an option of the file; repeatable."),
]
