"""The commands. Reads options, builds the daemons and talks to the operator; knows no protocol and no file format."""
