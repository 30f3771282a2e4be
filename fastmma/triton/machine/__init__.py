"""Execute the PTX of a compiled kernel: all threads of many blocks at once, on arrays."""
