"""Why an element of a product has its bits, and where two products differ."""
