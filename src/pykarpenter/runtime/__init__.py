"""Clock, work queues, rate limits, leader gate, metrics, logs and health."""
