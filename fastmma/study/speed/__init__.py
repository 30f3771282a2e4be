"""Speed: products of chosen formats, sizes and GPUs, and what other libraries take for the same."""
