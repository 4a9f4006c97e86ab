"""The name server: which topic lives on which broker. Routes are kept in memory only; brokers register every 30 s."""
