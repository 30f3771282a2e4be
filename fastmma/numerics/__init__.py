"""The arithmetic of each GPU: rows of the numerics table, and the exact reference that reads them."""
