// Command vet runs the analyzers of go vet without compiling code. For a foreign operating system,
// go vet first compiles the standard library and every dependency, which takes minutes. Command vet
// reads only their declarations.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"
	"golang.org/x/tools/go/analysis/suite/vet"
)

func main() { multichecker.Main(vet.Suite...) }
