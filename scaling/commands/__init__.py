"""The commands of the `scaling` command line, one family a file."""
