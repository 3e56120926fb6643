"""Objects that are made to use up memory or time, or to end a process: read in a process of their own, and measured."""
