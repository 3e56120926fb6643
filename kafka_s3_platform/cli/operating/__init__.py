"""Commands of those who look after archives."""
