"""A kube-scheduler for the embedded cluster: the default filters and scores, preemption, and the usual messages."""
