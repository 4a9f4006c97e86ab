"""Typed bodies: schemas, readers and writers for JSON, Avro and Protobuf; for topics, stores, sink and archive."""
