"""launch=slurm: what the environment says, the job that is planned and submitted, the tasks of a step."""
