"""From text or .bin/.idx files to batches of token ids, in numpy; torch begins where a batch leaves here."""
