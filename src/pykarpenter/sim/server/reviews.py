"""Questions about permissions and identity: whoever has the token may do everything.

`kubectl auth can-i`, `auth whoami` and controllers that check their permissions before they start ask these. They are
answered from the question alone; nothing is stored.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

USER = "pykarpenter"
GROUPS = ["system:masters", "system:authenticated"]
_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
# (group, plural) -> (kind, namespaced)
REVIEWS: dict[tuple[str, str], tuple[str, bool]] = {
    (_AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
    (_AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
    (_AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", False),
    (_AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    (_AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", False),
}
VERSION = "v1"


def plural_of(group: str, version: str, rest: str) -> str | None:
    """The kind of question that a path asks, or None when it asks none."""
    plural = rest.rpartition("/")[2]
    return plural if version == VERSION and (group, plural) in REVIEWS else None


def answer(group: str, plural: str, body: Any) -> Json:
    kind, _ = REVIEWS[(group, plural)]
    asked: Json = body if isinstance(body, dict) else {}
    status: Json = {"allowed": True}
    if plural == "selfsubjectrulesreviews":
        rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        status = {"resourceRules": rules, "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}
        status["incomplete"] = False
    elif plural == "selfsubjectreviews":
        status = {"userInfo": {"username": USER, "groups": GROUPS}}
    return {
        "kind": kind,
        "apiVersion": f"{group}/{VERSION}",
        "metadata": {"creationTimestamp": None},
        "spec": asked.get("spec") or {},
        "status": status,
    }
