"""Commands for operators of archives."""
