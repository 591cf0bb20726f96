// Command network-policies enforces NetworkPolicies in the network namespace that it runs in, for the tests.
//
// The engine is that of sigs.k8s.io/kube-network-policies: the kernel hands it the first packet of each connection through
// a netfilter queue, and the engine accepts or drops the packet. The namespaces, pods and policies come from standard
// input, one JSON object a line, instead of an apiserver. The caller makes the rules that put packets into the queue: the
// engine's own rules need nftables' queue expression, which not every kernel has.
package main

import (
	"bufio"
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

const longestObject = 1 << 20 // bytes

func main() {
	klog.InitFlags(nil)
	node := flag.String("node", "", "name of the node whose pods these are")
	queue := flag.Int("queue", 100, "number of the netfilter queue")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, networkpolicy.Config{NodeName: *node, QueueID: *queue, NRIdisabled: true}); err != nil {
		klog.Fatal(err)
	}
}

func run(ctx context.Context, config networkpolicy.Config) error {
	objects, err := read()
	if err != nil {
		return err
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	controller, err := networkpolicy.NewController(
		client, factory.Networking().V1().NetworkPolicies(), core.Namespaces(), core.Pods(), nil, nil, nil, nil, config)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return controller.Run(ctx)
}

func read() ([]runtime.Object, error) {
	var objects []runtime.Object
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestObject)
	for lines.Scan() {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(lines.Bytes(), nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, lines.Err()
}
