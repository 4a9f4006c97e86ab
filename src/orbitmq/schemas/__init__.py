"""Schemas of bodies: their kinds, versions, and which of them read each other's bodies. Pure: knows no name server."""
