"""The name server: which topic lives on which broker. Routes are memory only; brokers tell them anew every 30 s."""
