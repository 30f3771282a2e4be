"""Matrix products of any size."""
