"""The plan as a value: built from verdicts, kept in a file, explained, estimated and foretold."""
