"""POP consumption: the broker delivers messages, and redelivers those that are not acknowledged in time."""
