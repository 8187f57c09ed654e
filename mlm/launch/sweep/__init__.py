"""-m: several runs, one after the other, in a folder that says what became of each."""
