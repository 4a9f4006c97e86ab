"""The command line. Parses options, builds the daemons and prints results; knows no protocol and no file format."""
