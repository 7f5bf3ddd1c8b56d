//go:build components

// Package components names the etcd program, so that go.mod and go.sum cover what it needs. The tag
// is never set: the program is built by its own import path.
package components

import _ "go.etcd.io/etcd/server/v3"
