"""Sharing among pods saves memory and changes nothing that anybody reads."""

import json

import msgspec
import pytest
from benchmarks.pods import pod_pages, pod_texts

from pykarpenter.api.kinds import POD
from pykarpenter.api.pods import Pod
from pykarpenter.kube import interning
from pykarpenter.kube.codec import Codec
from pykarpenter.kube.interning import PodInterner, keeps_annotation


def decoded(*texts):
    codec = Codec(POD, PodInterner(), lambda *_: pytest.fail("a good pod was set aside"))
    return [codec.object(text if isinstance(text, bytes) else text.encode()) for text in texts]


def plain(text):
    """What a straightforward decoder makes of it, without the parts that are dropped on purpose."""
    pod = msgspec.json.decode(text, type=Pod)
    found = msgspec.to_builtins(pod)
    meta, spec, status = found.get("metadata", {}), found.get("spec", {}), found.get("status", {})
    meta["annotations"] = {k: v for k, v in meta.get("annotations", {}).items() if keeps_annotation(k)}
    unread = ("PodReadyToStartContainers", "Initialized", "ContainersReady")
    status["conditions"] = [c for c in status.get("conditions", []) if c["type"] not in unread]
    spec["volumes"] = [v for v in spec.get("volumes", []) if "persistentVolumeClaim" in v or "ephemeral" in v]
    return {"metadata": meta, "spec": spec, "status": status}


def shown(pod):
    found = msgspec.to_builtins(pod)
    return {
        "metadata": {"annotations": {}, **found.get("metadata", {})},
        "spec": {"volumes": [], **found.get("spec", {})},
        "status": {"conditions": [], **found.get("status", {})},
    }


def test_shared_pods_read_exactly_like_pods_decoded_alone():
    """The fast path compares texts with holes; a mistake there would move pods between nodes."""
    texts = list(pod_texts(400, workloads=40))
    for text, pod in zip(texts, decoded(*texts), strict=True):
        assert shown(pod) == plain(text)


def test_pods_of_one_workload_share_what_is_equal():
    """That is where the memory goes."""
    first, *_, second = decoded(*pod_texts(300, workloads=1))
    assert first.spec.node_name != second.spec.node_name
    assert first.spec.containers is second.spec.containers
    assert first.metadata.labels is second.metadata.labels
    assert first.metadata.owner_references is second.metadata.owner_references


def test_f38_workloads_that_are_gone_are_let_go(monkeypatch):
    """A hundred thousand Jobs a day come and go; those of yesterday must not stay in memory."""
    monkeypatch.setattr(interning, "_LEAST_PODS", 100)
    interner = PodInterner()
    codec = Codec(POD, interner, lambda *_: pytest.fail("a good pod was set aside"))
    steady, *_ = pod_texts(1, workloads=1)
    first = codec.object(steady)
    sizes = []
    for number in range(3000):
        text = pod_text(f"job-{number}")
        for _ in range(5):
            codec.object(text)
        # What lives on still shares, however many others were there in between.
        assert codec.object(steady).spec.containers is first.spec.containers
        sizes.append(len(interner._workloads) + len(interner._values))
    assert max(sizes[1500:]) <= max(sizes[:1500]) < 500


def pod_text(job):
    body = {
        "metadata": {
            "name": f"{job}-1",
            "labels": {"job-name": job},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}],
        },
        "spec": {"containers": [{"name": "main", "image": job}]},
        "status": {"containerStatuses": [{"name": "main", "image": job}]},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def variant(text, change):
    body = json.loads(text)
    change(body)
    return json.dumps(body, separators=(",", ":"))


def set_node(name):
    return lambda body: body["spec"].__setitem__("nodeName", name)


def test_a_difference_anywhere_in_the_spec_is_seen():
    """VPA and webhooks change single pods of a workload; they must not be taken for their siblings."""
    (text,) = pod_texts(1, workloads=1)

    def more_cpu(body):
        body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "7"

    def longer(body):
        body["spec"]["terminationGracePeriodSeconds"] = 31

    def pending(body):
        del body["spec"]["nodeName"]

    def injected_longer(body):
        body["spec"]["volumes"][0]["name"] = "kube-api-access-abcdefgh"

    changes = [more_cpu, longer, pending, injected_longer, set_node("n"), set_node('we"ird'), set_node("")]
    variants = [text, *(variant(text, change) for change in changes), text]
    for source, pod in zip(variants, decoded(*variants), strict=True):
        assert shown(pod) == plain(source)


def test_unique_specs_still_share_their_parts():
    """DaemonSet pods name their node: a hundred thousand of them must not mean as many container lists."""
    texts = []
    for n, text in enumerate(pod_texts(8, workloads=1)):

        def pin(body, n=n):
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"node-{n}"]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            body["spec"]["affinity"] = {"nodeAffinity": required}

        texts.append(variant(text, pin))
    pods = decoded(*texts)
    assert len({id(pod.spec.containers) for pod in pods}) == 1
    assert len({id(pod.spec.tolerations) for pod in pods}) == 1
    for source, pod in zip(texts, pods, strict=True):
        assert shown(pod) == plain(source)


def test_claims_and_our_annotations_are_kept():
    """What is dropped is noise; what decisions read stays."""
    (text,) = pod_texts(1, workloads=1)

    def change(body):
        body["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}})
        body["metadata"]["annotations"].update(
            {
                "karpenter.sh/do-not-disrupt": "true",
                "controller.kubernetes.io/pod-deletion-cost": "5",
                "kubectl.kubernetes.io/last-applied-configuration": "x" * 5000,
            }
        )

    (pod,) = decoded(variant(text, change))
    assert [v.persistent_volume_claim.claim_name for v in pod.spec.volumes] == ["data-0"]
    assert pod.metadata.annotations == {
        "karpenter.sh/do-not-disrupt": "true",
        "controller.kubernetes.io/pod-deletion-cost": "5",
    }


def test_pods_without_owner_labels_or_spec_decode():
    """Static pods, and whatever a broken client managed to create."""
    bare, labelled = decoded(b'{"metadata":{"name":"a"}}', b'{"metadata":{"name":"b","labels":{"x":"y"}},"spec":{}}')
    assert (bare.name, bare.spec.containers, bare.metadata.labels) == ("a", [], {})
    assert labelled.metadata.labels == {"x": "y"}
    (odd,) = decoded(b'{"metadata":{"name":"c","labels":null,"ownerReferences":null}}')
    assert (odd.metadata.labels, odd.metadata.owner_references) == ({}, [])


def test_a_page_shares_across_pages():
    """Lists come in pages of 500; a workload spans many."""
    codec = Codec(POD, PodInterner(), lambda *_: None)
    pages = [codec.page(body) for body in pod_pages(20, size=10, workloads=1)]
    assert len({id(pod.spec.containers) for page in pages for pod in page.items}) == 1
