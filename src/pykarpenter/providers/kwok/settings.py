"""The provider's own flags and variables."""

from __future__ import annotations

from pykarpenter.cloud.plugin import Setting
from pykarpenter.runtime.setting_values import choice

KUBELETS = Setting(
    "kwok-kubelets",
    "KWOK_KUBELETS",
    "builtin",
    "who plays the kubelets of simulated nodes: this program (builtin), or another one (external)",
    choice("builtin", "external"),
)
INSTANCE_TYPES_FILE = Setting(
    "instance-types-file-path",
    "INSTANCE_TYPES_FILE_PATH",
    "",
    "JSON file with instance types instead of the built-in 144",
)

SETTINGS = (KUBELETS, INSTANCE_TYPES_FILE)
