"""How things stand: of a topic, what is archived and what waits, how late it is and what may be lost."""
