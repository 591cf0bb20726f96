module enginewright.io/hack/kserve

go 1.25.8

// Nothing of it is built: its folder config/crd/full holds the CustomResourceDefinitions that tests install.
require github.com/kserve/kserve v0.20.0
