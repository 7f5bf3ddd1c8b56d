"""From pods that have nowhere to go to NodeClaims: triggers, batching, planning, creation."""
