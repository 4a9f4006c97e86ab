"""Who is the master of a broker name: what a broker knows of promotions, and what it stops doing when one is later."""
