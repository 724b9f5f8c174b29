//go:build tools

// The programs beside the server, so that `go mod tidy` keeps what they are made of.
package main

import (
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
)
