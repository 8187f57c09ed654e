"""mlm-data, one file per subcommand."""
