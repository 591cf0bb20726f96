package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	criapi "k8s.io/cri-api/pkg/apis"
	cri "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
)

// runRemovePods stops and removes every pod of a container runtime, without an API server or a kubelet: the last step
// before the runtime itself is stopped, so that it takes down the pods' mounts and networks in its own order.
func runRemovePods() int {
	endpoint := flag.String("endpoint", "", "the runtime's socket, as unix:///path")
	timeout := flag.Duration("timeout", time.Minute, "how long each call may take")
	flag.Parse()
	logger := klog.Background()
	runtime, err := cri.NewRemoteRuntimeService(*endpoint, *timeout, nil, &logger)
	if err == nil {
		err = removePods(context.Background(), runtime)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func removePods(ctx context.Context, runtime criapi.RuntimeService) error {
	pods, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	failures := make([]error, len(pods))
	var group sync.WaitGroup
	for index, pod := range pods {
		group.Add(1)
		go func() {
			defer group.Done()
			err := runtime.StopPodSandbox(ctx, pod.Id)
			if err == nil {
				err = runtime.RemovePodSandbox(ctx, pod.Id)
			}
			if err != nil {
				failures[index] = fmt.Errorf("remove pod %s/%s: %w", pod.Metadata.Namespace, pod.Metadata.Name, err)
			}
		}()
	}
	group.Wait()
	return errors.Join(failures...)
}
