"""The nouns of the command line, one module each: names, flags, help. A verb's implementation is imported late."""
