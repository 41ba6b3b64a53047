// Package cmdtest tests how commands parse command lines, and holds their output for tests.
package cmdtest

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Check parses the command lines that are the keys of want, without running the command, and compares
// its options, except the target. nil wants an error.
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
		if got, want := text(reflect.ValueOf(got)), text(reflect.ValueOf(want)); got != want {
			t.Errorf("%q: got options {%s}, want {%s}", line, got, want)
		}
	}
}

// text returns the exported fields of options that are set.
func text(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		return text(v.Elem())
	case reflect.Struct:
		var set []string
		for i := range v.NumField() {
			field, value := v.Type().Field(i), v.Field(i)
			isEmpty := value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0
			isShared := field.Name == "Factory" || field.Name == "Target"
			if field.IsExported() && !isEmpty && !isShared && text(value) != "" {
				set = append(set, field.Name+": "+text(value))
			}
		}
		return strings.Join(set, ", ")
	case reflect.Invalid:
		return "none"
	}
	return fmt.Sprintf("%q", fmt.Sprint(v))
}
