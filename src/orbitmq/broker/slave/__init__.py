"""What a slave does besides replicating its log: it copies tables from the master and leaves requests to the master."""
