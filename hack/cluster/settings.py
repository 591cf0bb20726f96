"""Names and addresses of the local cluster: certificates, routes and manifests must agree on them."""

from __future__ import annotations

NODE_NAME = "enginewright"
# The node's own address lives on an interface of its own: the cluster does not change when the machine's network does,
# works without any network, and is reachable from this machine and its pods alone.
NODE_INTERFACE = "enginewright0"
NODE_ADDRESS = "10.245.0.1"
API_PORT = 6443
POD_CIDR = "10.244.0.0/24"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"

# Debian's containernetworking-plugins puts its programs here.
CNI_PLUGIN_DIR = "/usr/lib/cni"
NFT_TABLE = "enginewright"
CONTAINERD_NAMESPACE = "k8s.io"

PAUSE_IMAGE = "localhost/enginewright/pause:1"
COREDNS_IMAGE = "localhost/enginewright/coredns:1"

# Every process that we start carries this variable, with the directory of its cluster as the value, and its children
# inherit it: so that one whose record was lost is still known as ours.
OWNER_VARIABLE = "ENGINEWRIGHT_CLUSTER_DIR"
