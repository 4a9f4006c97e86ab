"""Writes the generated pages of `docs/reference`. A tool of developers: it stays out of the wheel."""
