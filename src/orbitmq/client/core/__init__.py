"""The client's decisions as pure code: no socket, no loop, no clock; the shells above bring time and answers in."""
