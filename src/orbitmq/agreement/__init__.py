"""Where replicas agree on their master: stores of agreement that operators run already, behind one interface."""
