"""One module per command, imported when it is called; each calls its click command ``command``."""
