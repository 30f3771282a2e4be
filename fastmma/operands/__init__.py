"""Where operands lie: registers, metadata, scales; the checks of what users pass."""
