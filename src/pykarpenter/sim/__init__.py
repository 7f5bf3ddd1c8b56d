"""The embedded cluster: API server, scheduler, kubelet, workload controllers, cloud, faults, checkers."""
