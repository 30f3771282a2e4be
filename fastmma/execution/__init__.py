"""One instruction at a time, on matrices or registers."""
