// Program kube is as much of Kubernetes as the tests beside it need: a kube-apiserver with its etcd, and a loop that does what
// kubelets do with pods. It listens on this machine only.
package main

import (
	"fmt"
	"os"
)

func main() {
	roles := map[string]func([]string) error{"apiserver": serveAPI, "kubelet": runPods}
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kube apiserver|kubelet [options]")
		os.Exit(2)
	}
	if err := roles[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
