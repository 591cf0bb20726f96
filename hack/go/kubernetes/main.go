// Command kubernetes is the five programs of a Kubernetes node, kubectl, and a helper, in one binary.
//
// They share most of their code: linked together they take a fraction of the time and space of six binaries.
// The program to run is the name that the binary is called by (a symbolic link), or else its first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJob time zones on a machine without a zone database

	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's sign-in plug-ins, for clusters other than the local one
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of client-go's requests
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps a name to what runs it and returns its exit code. The constructors register flags and feature gates in
// registries of the whole process, so only the one in use may be called.
var programs = map[string]func() int{
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 runKubectl,
	"remove-pods":             runRemovePods,
}

// runKubectl sets the log level before the command is built, because building it already logs.
func runKubectl() int {
	if _, err := logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it and exits with its code
		return 1
	}
	return 0
}

func main() {
	name := filepath.Base(os.Args[0])
	run, found := programs[name]
	if !found && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
		run, found = programs[name]
	}
	if !found {
		names := make([]string, 0, len(programs))
		for known := range programs {
			names = append(names, known)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "unknown program %q: call this by, or give as first argument, one of %s\n",
			name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}
