"""Rehearsals. A part of each archive is restored, compared, and removed again."""
