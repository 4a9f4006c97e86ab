"""The nouns of the command line, a module each: names, flags, help. What a verb does is imported when it is called."""
