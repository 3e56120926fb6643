"""Commands about this machine: what makes starts quick, and whether it is used."""
