"""Every reader and parser against damaged and hostile input; ``python -m fuzz --help``."""
