"""Print how much of a processor's time each file of choices takes from its opening to its first answer."""

from __future__ import annotations

import time

from fastmma.products.choice_map import choice_map
from fastmma.products.cublas.answers import answers
from fastmma.products.cublas.book import shipped_book
from fastmma.products.cublas.layers import FILES, layers
from fastmma.products.cublas.rows import Product
from fastmma.products.cublas.tables import TABLES
from fastmma.products.cublas.trees import trees


def _spent(find: object, *arguments: object, **more: object) -> float:
    """Return the milliseconds of a call."""
    begun = time.process_time()
    find(*arguments, **more)  # type: ignore[operator]
    return 1000 * (time.process_time() - begun)


def main() -> None:
    """Print a line for each file, and each type of products in it."""
    for (gpu, version), table in TABLES.items():
        products = [Product(fmt, "nt", 200, 4096, 4096, fmt) for fmt in ("bf16", "f16", "f32")]
        products.append(products[-1]._replace(fmt="tf32"))
        print(f"plan book of {gpu}: {_spent(shipped_book, gpu):.1f} ms")
        for fmt, *_ in products[:2]:
            print(f"{table.parts}, {fmt}: {_spent(choice_map(table.parts).find, fmt, 'nt', 200, 4096, 4096):.1f} ms")
        for product in products:
            print(f"{table.answers}, {product.fmt}: {_spent(answers(table.answers).find, product):.1f} ms")
            file = FILES.get((gpu, version))
            if file is not None:
                print(f"{file}, {product.fmt}: {_spent(layers(file).find, product.fmt, product):.1f} ms")
            print(f"{table.trees}, {product.fmt}: {_spent(trees(table.trees).predict, product):.1f} ms")


if __name__ == "__main__":
    main()
