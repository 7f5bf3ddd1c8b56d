//go:build components

// Package components lists the programs of a Kubernetes control plane, so that go.mod and go.sum
// cover what they need. The tag is never set: the programs are built by their own import paths.
package components

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
