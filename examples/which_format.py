"""Which block-scaled format loses least on these matrices? A study of five formats on a B200, with and without outliers."""

from fastmma import study

FORMATS = ("mxfp8_e4m3", "mxfp6_e2m3", "nvfp4", "mxfp4", "bf16")


def main() -> None:
    grid = study.Grid(formats=FORMATS, targets=("B200",), shapes=((128, 128, 2048),), distributions=("normal", "outliers"))
    found = {(record["format"], record["distribution"]): record["sqnr_db"] for record in study.run(grid)}
    for name in sorted(FORMATS, key=lambda name: -found[name, "normal"]):
        print(f"{name:11} {found[name, 'normal']:6.1f} dB, with outliers {found[name, 'outliers']:6.1f} dB")


if __name__ == "__main__":
    main()
