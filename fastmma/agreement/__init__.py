"""Decide whether plans agree: a normal form of what each computes, proofs, and operands on which they differ."""
