"""Several runs that belong together: their definition, their points, the record of what became of them."""
