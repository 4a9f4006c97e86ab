"""Flags that daemons share. Light: typer is all it imports."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

PrintConfig = Annotated[
    bool, typer.Option("-p", "--print-config", help="Print the effective configuration as a properties file and exit.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="Log lines go to standard error, from this level.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the file, set over what it says; repeatable."),
]
