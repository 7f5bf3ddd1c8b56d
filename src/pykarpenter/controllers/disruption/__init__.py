"""Disruption at work: the loop that decides, the queue that carries out, and what they tell."""
