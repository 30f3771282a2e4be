"""Trees that predict what cuBLASLt chooses: ask a GPU, grow trees of its answers, judge and pack them.

On a machine with the GPU and PyTorch, for some minutes::

    python -m tools.choice_trees.ask --kinds bf16=2,f16=2,tf32=2,f32=1 --seconds 300 --seed 1 answers

Anywhere, with gigabytes of memory and minutes for each million answers::

    python -m tools.choice_trees.grow answers trees
    python -m tools.choice_trees.pack answers trees fastmma/products/books/cublas_trees_h200_13_1.npz

An H100's trees were grown after an H200's, whose predictions are among the numbers that they compare: `grow` and `pack` take
``--before cublas_trees_h200_13_1.npz``. The trees that ship are judged by answers for seeds that no tree was grown from::

    python -m tools.choice_trees.judge answers --gpu H100
"""
