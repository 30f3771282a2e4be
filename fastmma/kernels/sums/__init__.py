"""What becomes of sums: promotions and epilogues."""
