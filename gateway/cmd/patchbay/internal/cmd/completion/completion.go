// Package completion prints scripts that complete command lines.
package completion

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
)

// CompleteCommand completes the command after "--": programs as its first word, then files. It reports
// whether the arguments of patchbay are a request for such a completion.
func CompleteCommand(f *cmdutil.Factory, args []string) bool {
	if len(args) < 2 || args[0] != cobra.ShellCompRequestCmd && args[0] != cobra.ShellCompNoDescRequestCmd {
		return false
	}
	words, typed := args[1:len(args)-1], args[len(args)-1]
	dash := slices.Index(words, "--")
	if dash < 0 {
		return false
	}
	if dash == len(words)-1 {
		for _, name := range target.Matching(programs(), typed) {
			f.IO.Out.Printf("%s", name)
		}
	}
	f.IO.Out.Printf(":%d", cobra.ShellCompDirectiveDefault) // files, if there is no completion
	return true
}

// programs returns the names of the programs in $PATH.
func programs() (names []string) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // skip folders that cannot be read
		for _, e := range entries {
			if _, err := exec.LookPath(filepath.Join(dir, e.Name())); err == nil && filepath.IsAbs(dir) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
