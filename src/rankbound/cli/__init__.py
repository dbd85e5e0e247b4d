"""The command line: one thin file per command, which parses, calls the library and prints."""
