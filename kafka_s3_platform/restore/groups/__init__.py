"""Consumer groups at a restored topic: their archived offsets translated, and committed there as a step of its own."""
