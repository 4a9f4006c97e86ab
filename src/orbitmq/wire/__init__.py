"""The remoting protocol without I/O: codes, commands, frames, headers and bodies. Bytes in, values out."""
