"""From a checked configuration to running worker processes: this machine, torchrun, Slurm, dry runs."""
