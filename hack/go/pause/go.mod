module enginewright.io/hack/pause

go 1.24.0
