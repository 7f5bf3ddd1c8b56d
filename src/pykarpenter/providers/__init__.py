"""Cloud providers, plug-ins found by the entry point group `pykarpenter.providers`."""
