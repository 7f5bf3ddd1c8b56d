"""The fleet planner: which machines to give up and which to buy so that the bill falls and few pods move."""
