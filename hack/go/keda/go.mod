module enginewright.io/hack/keda

go 1.24.7

// Nothing of it is built: its folder config/crd/bases holds the CustomResourceDefinitions that tests install.
require github.com/kedacore/keda/v2 v2.18.0
