"""mlm-convert, one file per subcommand."""
