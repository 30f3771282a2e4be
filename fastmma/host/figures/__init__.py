"""One style for every picture that fastmma draws with matplotlib: sizes, colours, labels, and the files that pictures are saved to."""
