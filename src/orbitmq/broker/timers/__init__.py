"""Timer messages of a broker: accepted, kept until they are due, delivered, recalled."""
