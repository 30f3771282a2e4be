"""Operands in memory: addresses, fragments of registers, sparse rows."""
