// Command vet runs the analyzers of go vet on source code alone. For another system, go vet
// first compiles the standard library and every dependency, which takes minutes; this command
// reads their declarations.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"
	"golang.org/x/tools/go/analysis/suite/vet"
)

func main() { multichecker.Main(vet.Suite...) }
