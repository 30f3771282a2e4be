"""tcgen05.mma, the tensor cores of datacenter Blackwell: its opcodes, its two descriptors, and where its matrices lie in Tensor Memory."""
