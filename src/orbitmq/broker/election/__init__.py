"""The broker's part in the election of its master: what `failover` decides is asked for, done, and reported here."""
