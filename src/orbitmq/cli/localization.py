"""Commands in another language than English. Imported for those only, so that English help is as fast as without."""

from __future__ import annotations

import os
from gettext import bindtextdomain, textdomain
from typing import Any

from orbitmq.cli.help_texts import localize
from orbitmq.cli.wide_help import WideHelp
from orbitmq.runtime.languages import DOMAIN, LOCALES, gettext, language


def begin(command: Any) -> None:
    """Translate the help of the program and what typer and argparse say in it, and lay it out for wide characters."""
    os.environ["LANGUAGE"] = language()  # those two look their texts up by the environment
    bindtextdomain(DOMAIN, str(LOCALES))
    textdomain(DOMAIN)
    command.context_class.formatter_class = WideHelp
    localize(command, gettext)
