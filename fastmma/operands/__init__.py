"""Places of operands: registers, metadata, scales; the checks of what users pass."""
