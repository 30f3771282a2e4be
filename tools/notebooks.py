"""Notebooks: executed, and shown by the site as pages with the outputs that they hold.

``python -m tools.notebooks`` executes those of docs/notebooks anew; MkDocs calls `on_files` of this module.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
_PICTURES = ("image/svg+xml", "image/png")


def executed(path: Path, folder: Path) -> Any:
    """The notebook with the outputs of a new kernel that runs in ``folder``; what libraries print to stderr is left out."""
    import nbformat
    from nbclient import NotebookClient

    root = str(FOLDER.parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(folder)}}).execute()
    book.metadata.pop("language_info", None)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined([output for output in cell.outputs if output.get("name") != "stderr"])
    return book


def _joined(outputs: list[Any]) -> list[Any]:
    """The outputs, of which those printed one after another are one."""
    found: list[Any] = []
    for output in outputs:
        output.pop("metadata", None) if output.output_type == "stream" else output.metadata.clear()
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def texts(book: Any) -> list[list[str]]:
    """What each code cell shows: its texts, and for pictures their types."""
    return [[_picture(output) or _text(output) for output in cell.outputs] for cell in book.cells if cell.cell_type == "code"]


def _picture(output: Any) -> str:
    return next((kind for kind in _PICTURES if kind in output.get("data", {})), "")


def _text(output: Any) -> str:
    return str(output.text if output.output_type == "stream" else output.data["text/plain"])


def page(path: Path) -> str:
    """The notebook as Markdown."""
    import nbformat

    parts = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            kind = _picture(output)
            parts.append(_image(kind, output.data[kind]) if kind else f"```{{.text .output}}\n{_text(output).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _image(kind: str, data: str) -> str:
    content = re.sub(r"\s", "", data) if kind == "image/png" else base64.b64encode(data.encode()).decode()
    return f"![what the cell draws](data:{kind};base64,{content})"


def on_files(files: Any, config: Any) -> Any:
    """Put a page in the place of each notebook; links name the notebook's file."""
    from mkdocs.structure.files import File

    class Notebook(File):
        def is_documentation_page(self) -> bool:
            return True

        @property
        def content_string(self) -> str:
            return page(Path(self.abs_src_path))

    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            files.append(Notebook(file.src_path, file.src_dir, config.site_dir, config.use_directory_urls))
    return files


if __name__ == "__main__":
    import nbformat

    for notebook in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(notebook, FOLDER), notebook)
