"""Which broker is the master of a broker name: the promotions a broker knows, and what it stops after a later one."""
