"""What the project depends on, and what a release says of it. Must not know what orbitmq does; src needs none of it.

`locks` reads the lists of locked versions, `audit` asks whether one has a known vulnerability, `sbom` writes the bill
of materials of a release.
"""
