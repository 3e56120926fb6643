"""The state of topics: their archived and waiting records, their lateness, and the risk of losses."""
