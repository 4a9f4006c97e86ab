"""The nouns of the command line, one module each: names, flags, help. The implementation of a verb is imported when it
is called."""
