"""Plain Kubernetes objects that tests put into the cluster."""

from __future__ import annotations

from typing import Any


def pause_pod(namespace: str, name: str, **requests: str) -> dict[str, Any]:
    """A pod of one container that asks for `requests` (`cpu="1"`) and does nothing."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": pause_pod_spec(**requests),
    }


def pause_pod_spec(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}]}


def deployment(namespace: str, name: str, replicas: int, **requests: str) -> dict[str, Any]:
    """A Deployment of pause pods, all labelled `app=<name>`."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pause_pod_spec(**requests)},
        },
    }
