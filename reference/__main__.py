"""`python -m reference DIRECTORY` writes all pages into the directory."""

from __future__ import annotations

import sys
from pathlib import Path

from reference.pages import PAGES

for name, page in PAGES.items():
    path = Path(sys.argv[1]) / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(), encoding="utf-8")
