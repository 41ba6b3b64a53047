// Package cmdtest tests how commands parse command lines.
package cmdtest

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Check parses the command lines that are the keys of want, without running the command, and compares its
// options. nil wants an error.
func Check[O any](t *testing.T, newCmd func(*cmdutil.Factory, cmdutil.Run[*O]) *cobra.Command, want map[string]*O) {
	t.Helper()
	for line, want := range want {
		var got *O
		f := cmdutil.New(term.NewStreams(strings.NewReader(""), io.Discard, io.Discard), &flags.Flags{})
		root := &cobra.Command{Use: "patchbay", SilenceErrors: true, SilenceUsage: true}
		cmdutil.AddFlags(f, root)
		root.AddCommand(newCmd(f, func(_ context.Context, o *O) error { got = o; return nil }))
		root.SetArgs(strings.Fields(line))
		err := root.ExecuteContext(t.Context())
		if (err != nil) != (want == nil) {
			t.Errorf("%q: got error %v", line, err)
		}
		// Other tests compare targets. Nil and empty slices are the same command line.
		options := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(&cmdutil.Factory{}, &target.Target{}),
			cmpopts.IgnoreUnexported(cmdutil.Invocation{}), cmp.FilterPath(func(p cmp.Path) bool {
				field, ok := p.Last().(cmp.StructField)
				return ok && field.Name()[0] >= 'a'
			}, cmp.Ignore())}
		if diff := cmp.Diff(want, got, options); diff != "" {
			t.Errorf("%q: options (-want +got):\n%s", line, diff)
		}
	}
}
