"""What each GPU computes: rows of the numerics table, and the exact reference that reads them."""
