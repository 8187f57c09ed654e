"""What is worth training on: rules, near-duplicates, overlap with evaluation sets. No torch."""
