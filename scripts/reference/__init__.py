"""Pages of docs/reference, written from the code that they describe: `python -m scripts.reference` writes them."""
