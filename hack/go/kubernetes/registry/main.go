// Command registry keeps images and artifacts in a folder, for the tests.
//
// It is CNCF Distribution's registry without the drivers of the clouds' stores: their clients take more time to compile
// than all the rest.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if err := registry.RootCmd.Execute(); err != nil {
		os.Exit(1)
	}
}
