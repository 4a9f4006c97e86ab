"""What makes a broker a slave, beside its log: tables copied from the master, and requests it leaves to the master."""
