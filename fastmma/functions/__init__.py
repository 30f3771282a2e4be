"""What torch's CUDA kernels compute between matrix products, with a GPU's bits: arrays in, arrays out, no torch needed."""
