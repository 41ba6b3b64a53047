package cmdutil

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Execute runs a command, reports its error and returns its exit code.
func Execute(ctx context.Context, f *Factory, cmd *cobra.Command) int {
	return Finish(ctx, f, cmd.ExecuteContext(ctx))
}

// Finish shows the error of a command and returns its exit code.
func Finish(ctx context.Context, f *Factory, err error) int {
	f.IO.Err.Done()
	if err == nil {
		err = f.IO.Out.Err
	}
	if closed := f.Client.CloseTrace(); err == nil {
		err = closed
	}
	code := exit.Code(ctx, err)
	if m := f.Client.Missing.Load(); code == exit.Incomplete && m != nil && m.Failed > 0 {
		f.Client.ShowTail() // the standard error of a gateway that ended says why
	}
	if err == nil || errors.Is(err, exit.ErrShown) {
		return code
	}
	fail(f, code, err, Advise(ctx, f, code, err))
	return code
}

func fail(p *Factory, code int, err error, a advice) {
	f, text := exit.NewReport(code, err), exit.Text(code, err)
	f.Login = a.Login
	if a.Message != "" {
		f.Message, text = a.Message, a.Message
	}
	if p.Flags.JSON {
		p.IO.Out.Value(map[string]exit.Report{"error": f})
	}
	if p.IO.Err.Records != nil {
		attributes := []slog.Attr{slog.Int("exit", code)}
		if hint := cmp.Or(a.Login, a.Hint); hint != "" {
			attributes = append(attributes, slog.String("hint", hint))
		}
		p.IO.Err.Record(slog.LevelError, text, attributes...)
		return
	}
	p.IO.Err.Printf("%s %s", p.IO.Prefix(), term.Clean(text))
	if f.Data != nil {
		const maxData = 1000 // characters
		p.IO.Err.Printf("  data: %s", term.Shorten(term.CleanJSON(string(f.Data)), maxData))
	}
	if f.Code == mcp.CodeInternalError || f.Code == codeOfServer {
		p.Client.ShowTail()
	}
	switch {
	case a.Login != "":
		p.IO.Err.Printf("  %s", term.CleanLine(a.Login))
	case a.Hint != "":
		p.IO.Err.Printf("  %s", term.CleanLine(a.Hint))
	case !strings.Contains(text, "did you mean") && doctor.Hint(code, p.Client.Current.Load(), p.Flags.Config) != "":
		p.IO.Err.Printf("  %s", term.CleanLine(doctor.Hint(code, p.Client.Current.Load(), p.Flags.Config)))
	case code == exit.Timeout && !errors.Is(err, oauthclient.ErrLoginTimeout) && !strings.Contains(text, "--timeout"):
		p.IO.Err.Printf("  No message for %v; change that with --timeout.", p.Flags.Timeout)
	}
}

// AddFlags adds the flags of all commands to the root command.
func AddFlags(p *Factory, root *cobra.Command) {
	f, all := p.Flags, root.PersistentFlags()
	all.BoolVar(&f.JSON, "json", false, "print JSON (see help json)")
	all.BoolVarP(&f.Verbose, "verbose", "v", false, "show messages and the server's stderr, on standard error")
	all.DurationVar(&f.Timeout, "timeout", connect.DefaultTimeout,
		"fail after this long, without the time in which the user answers; by default calls may\ntake longer "+
			"while the server sends messages")
	all.StringVar(&f.Revision, "revision", "", "use this protocol `revision`, such as "+connect.NewestRevision())
	all.StringArrayVar(&f.Header, "header", nil, "add an HTTP header, as `Name:value`")
	all.BoolVar(&f.InsecureHTTP, "insecure-http", false,
		"send credentials of headers also to an http URL of another machine: the network can read them")
	all.StringVar(&f.CaCert, "cacert", "", "trust the CA certificates of this PEM `file`, too, for HTTPS")
	all.StringArrayVar(&f.Environment, "env", nil,
		"set an environment variable of the command, as `KEY=value`: it inherits few (see \"help config\")")
	all.StringVar(&f.Directory, "cwd", "", "working `directory` of the command")
	all.StringVar(&f.Config, "config", "", "configuration `file` with the names of servers (see help config)")
	all.StringVar(&f.Answers, "answers", "", "answer elicitation and sampling from this `file` (see help answers)")
	all.StringVar(&f.SampleWith, "sample-with", "",
		"answer sampling with the output of this `command`, which gets the request as JSON (see help answers)")
	all.BoolVar(&f.NoInput, "no-input", false, "never prompt: decline elicitation and sampling")
	all.StringVar(&f.LogLevel, "log-level", "", "show log messages of at least this `level`, debug to emergency")
	all.StringVar(&f.Trace, "trace", "", "append all messages to this `file`, as JSON lines (see help recordings)")
	all.StringVar(&f.Save, "save", "", "save images, audio and other binary content to this `directory`")
	f.Color = flags.Choice{Value: "auto", Allowed: []string{"auto", "always", "never"}}
	all.Var(&f.Color, "color", "colour names and errors; auto: on a terminal without NO_COLOR and TERM=dumb")
	all.StringArrayVar(&f.Roots, "root", nil, "offer this `directory` to the server as a root")
	completeFlags(root)
}
