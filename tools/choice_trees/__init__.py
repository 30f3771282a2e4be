"""Maps and trees of what cuBLASLt chooses: ask a GPU, pack its answers or grow trees of them, and judge both by asking again.

The map of layers is asked for and judged on a machine with the GPU and PyTorch, and packed anywhere::

    python -m tools.choice_trees.ask_layers answers.npz --seconds 160
    python -m tools.choice_trees.pack_layers fastmma/products/books/cublas_layers_h200_13_1.npz answers.npz
    python -m tools.choice_trees.judge_maps --gpu H200

Trees predict what no map has. On a machine with the GPU and PyTorch, for some minutes::

    python -m tools.choice_trees.ask --kinds bf16=2,f16=2,tf32=2,f32=1 --seconds 300 --seed 1 answers

Anywhere, with gigabytes of memory and minutes for each million answers::

    python -m tools.choice_trees.grow answers trees
    python -m tools.choice_trees.pack answers trees fastmma/products/books/cublas_trees_h200_13_1.npz

An H100's trees were grown after an H200's, whose predictions are among the numbers that they compare: `grow` and `pack` take
``--before cublas_trees_h200_13_1.npz``. So were the trees of products whose parts are joined in float32 alone.

The trees that ship are judged by answers for seeds that no tree was grown from::

    python -m tools.choice_trees.judge answers --gpu H100

``python -m tools.choice_trees.load`` says how long the files take to load, and ``python -m tools.choice_trees.compare_gpus`` how often
the maps of an H100 and an H200 differ.
"""
