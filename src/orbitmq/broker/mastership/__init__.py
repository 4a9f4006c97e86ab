"""Which broker is the master of its name: the promotions a broker knows, and what it stops serving after a later one."""
