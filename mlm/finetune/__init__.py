"""Fine-tuning tasks without the network: examples from files, sequences for the model, metrics. No torch."""
