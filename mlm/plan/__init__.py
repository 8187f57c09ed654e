"""What a run will need and do, from the configuration alone: parameters, memory, FLOPs, groups. No torch."""
