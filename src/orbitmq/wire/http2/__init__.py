"""HTTP/2 (RFC 9113), header compression (RFC 7541) and the framing of gRPC, the server's end, without I/O."""
