"""What the user chooses: typed fields, composition of the YAML groups, checks. Imports no torch."""
