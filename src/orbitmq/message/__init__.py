"""The nouns: messages, queues, properties, flags, ids, and the unit codec shared by disk and wire. Pure."""
