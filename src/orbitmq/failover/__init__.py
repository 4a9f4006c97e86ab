"""Who is the master of a broker name, and which slaves have all that it has acknowledged. Pure: decisions only."""
