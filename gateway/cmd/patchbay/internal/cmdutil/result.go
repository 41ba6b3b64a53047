package cmdutil

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/content"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// EndCall prints the result of a tool. It returns an error if the tool failed.
func EndCall(f *Factory, result *mcp.CallToolResult) error {
	f.IO.Err.Done()
	if err := ShowResult(f, result); err != nil {
		return err
	}
	if result.IsError {
		return &exit.Error{Code: exit.OfTool(result), Err: exit.ErrShown}
	}
	return nil
}

// WrongArguments adds the usage of a tool or prompt to an error.
func WrongArguments(ctx context.Context, f *Factory, err error, verb, line string) error {
	if ctx.Err() != nil {
		return err
	}
	if f.Client.Shell != nil {
		return exit.UsageError(errors.Join(err, errors.New("usage: "+verb+" "+line)))
	}
	return exit.UsageError(errors.Join(err, errors.New("usage: patchbay "+verb+" TARGET "+line)))
}

// ShowResult prints the result of a tool.
func ShowResult(f *Factory, r *mcp.CallToolResult) error {
	if f.Flags.JSON {
		f.IO.Out.Result(r)
		for _, c := range r.Content {
			if err := SaveContent(f, c); err != nil {
				return err
			}
		}
		return nil
	}
	if r.IsError {
		f.IO.Err.Printf("%s the tool failed", f.IO.Prefix())
		for _, c := range r.Content {
			f.IO.Err.Printf("%s", term.Clean(content.Describe(c)))
		}
		return nil
	}
	if value := term.Structured(r); value != nil && f.IO.Out.Terminal {
		f.IO.Out.Write(term.LaidOut(value, f.IO.Out.Width()) + "\n")
		return nil
	}
	for _, c := range r.Content {
		if err := Show(f, c); err != nil {
			return err
		}
	}
	if len(r.Content) == 0 && r.StructuredContent != nil {
		f.IO.Out.Value(r.StructuredContent)
	}
	return nil
}

// PrintedJSON prints a value if --json is set, and reports whether it is.
func (f *Factory) PrintedJSON(value any) bool {
	if f.Flags.JSON {
		f.IO.Out.Value(value)
	}
	return f.Flags.JSON
}
