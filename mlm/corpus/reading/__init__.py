"""Raw text in: which files an input means, blocks of whole records, the texts of each record. No torch."""
