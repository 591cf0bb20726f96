module enginewright.io/hack/gateway-api

go 1.24.0

// Nothing of it is built: its folder config/crd/standard holds the CustomResourceDefinitions that tests install.
require sigs.k8s.io/gateway-api v1.4.0
