module enginewright.io/hack/kserve

go 1.25.8

// Its folder config holds what tests install, and make test-kserve builds its manager.
require github.com/kserve/kserve v0.20.0
