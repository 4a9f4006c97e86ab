"""The client's decisions as pure code: no socket, no loop, no clock; its callers pass in times and responses."""
