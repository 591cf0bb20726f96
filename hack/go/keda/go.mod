module enginewright.io/hack/keda

go 1.24.7

// Tests install the CustomResourceDefinitions of its folder config/crd/bases; hack/dev/keda.sh builds its programs for
// one test that `make test` does not run.
require github.com/kedacore/keda/v2 v2.18.0
