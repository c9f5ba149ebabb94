"""The outputs of the notebooks, stored anew: `python -m scripts.notebooks [NAME…]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def main(names: Sequence[str]) -> None:
    """Execute notebooks (all, if none is named) from top to bottom, and store their outputs in them.

    Args:
        names: as `what-if`.
    """
    import nbformat
    from nbclient import NotebookClient

    # Spark's workers run this Python, and import this package.
    os.environ |= {"PYTHONPATH": str(NOTEBOOKS.parent), "PYSPARK_PYTHON": sys.executable}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        client = NotebookClient(notebook, resources={"metadata": {"path": str(NOTEBOOKS)}})
        client.execute()
        for cell in notebook.cells:
            cell.metadata.clear()
            if cell.cell_type == "code":
                cell.outputs = [each for each in cell.outputs if each.output_type != "stream"]
        notebook.metadata.language_info = {"name": "python"}
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main(sys.argv[1:])
