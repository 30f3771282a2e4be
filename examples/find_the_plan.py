"""Bits of unknown origin: which instruction, on which GPU, in which order of k?"""

import numpy as np

import fastmma


def main() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((64, 4096)).astype(np.float16)
    b = rng.standard_normal((4096, 64)).astype(np.float16)
    d = fastmma.gemm(a, b, target="A100", split_k=2)  # stands for what came from elsewhere
    match = fastmma.identify(d, a, b)[0]
    print(f"{match.share:.0%} of the elements are those of")
    print(match.plan)
    other = fastmma.gemm(a, b, target="H100", split_k=2)
    print(str(fastmma.compare(d, other)).splitlines()[0].replace("differ", "differ from an H100's"))
    row, column = (int(place[0]) for place in (d != other).nonzero())
    found = fastmma.explain(a, b, row, column, plan=match.plan, against=fastmma.gemm_plan(a, b, target="H100", split_k=2))
    print(f"element [{row}, {column}] is {found.value} and would be {found.against.value}: the sums part at k = {found.difference.k[0]}")


if __name__ == "__main__":
    main()
