"""The explorer: a page that shows the layouts of all instructions, and sums as bars of bits."""
