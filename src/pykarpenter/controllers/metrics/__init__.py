"""What operators look at: gauges of nodes, pools, pods and conditions, and the events of conditions that changed."""
