"""PTX's facts of every instruction: one file a family, one row a shape and types."""
