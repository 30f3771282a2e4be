"""Explanations of the bits of an element of a product, and of the difference of two products."""
