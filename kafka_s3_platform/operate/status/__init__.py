"""How connectors stand as a whole: their state, and what of it concerns somebody."""
