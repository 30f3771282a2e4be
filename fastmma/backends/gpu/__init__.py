"""The same instructions on a real GPU: PTX text from the table (no CuPy needed), and running it through CuPy."""
