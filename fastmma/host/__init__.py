"""The machine and the caller: errors, the caller's arrays, threads, the floating-point mode."""
