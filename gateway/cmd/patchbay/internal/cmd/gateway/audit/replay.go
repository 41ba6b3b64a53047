package audit

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A recordedCall is the request of a record.
type recordedCall struct {
	Server string             `json:"server"`
	Method string             `json:"method"`
	Params stdjson.RawMessage `json:"params"`
	Sent   bool               `json:"sent"`
	// Result is that of this time, if it was sent.
	Result stdjson.RawMessage `json:"result,omitempty"`
	name   string
	args   stdjson.RawMessage
}

// ReplayOptions are the flags of "gateway audit replay".
type ReplayOptions struct {
	Options
	Send bool // the request again
}

// NewCmdReplay returns the command "gateway audit replay".
func NewCmdReplay(f *cmdutil.Factory, dir *string, run cmdutil.Run[*ReplayOptions]) *cobra.Command {
	o := &ReplayOptions{Options: Options{Dir: dir}}
	cmd := cmdutil.Command(f, "replay ID", "Show the request of a call, and send it again with --send",
		cobra.ExactArgs(1), o, cmdutil.Or(run, replay))
	cmd.Flags().BoolVar(&o.Send, "send", false, "send the request to the server, as the local user")
	return cmd
}

func replay(ctx context.Context, o *ReplayOptions) error {
	found, err := findAudit(o.Factory, *o.Dir, o.Words[0])
	if err != nil {
		return err
	}
	c, err := rebuild(found)
	if err != nil {
		return err
	}
	if o.Send {
		return sendAgain(ctx, o.Factory, c)
	}
	if o.PrintedJSON(c) {
		return nil
	}
	o.IO.Out.Printf("%s of server %s", term.CleanLine(c.Method), term.ShellWord(c.Server))
	o.IO.Out.Raw(c.Params)
	o.IO.Err.Printf("Not sent: use --send to send it again.")
	return nil
}

// rebuild returns the request of a call.
func rebuild(found []*audit.Entry) (*recordedCall, error) {
	var e *audit.Entry
	for _, f := range found {
		if f.Method != "" && (e == nil || e.Arguments == nil) {
			e = f
		}
	}
	switch {
	case e == nil || e.Server == "" || e.Target == "":
		return nil, errors.New("the record has no request to a server")
	case e.Arguments != nil && e.Arguments.Full == nil:
		return nil, errors.New(`the record does not have the arguments: the setting audit.args must be "full" when a ` +
			`call is recorded`)
	case e.Arguments != nil && e.Arguments.Masked:
		return nil, errors.New("the arguments had a secret of the configuration, which the record does not have")
	}
	c := &recordedCall{Server: e.Server, Method: e.Method, name: e.Target}
	member := "name"
	switch e.Kind {
	case string(policy.ActionCall), string(policy.ActionGet):
	case string(policy.ActionRead):
		member = "uri"
	default:
		return nil, fmt.Errorf("records of %.64q cannot be sent again: only calls, prompts and resources can", e.Method)
	}
	if member == "uri" && e.Arguments != nil { // the other params
		c.Params = rawjson.Set(e.Arguments.Full, member, rawjson.AppendQuote(nil, e.Target))
		return c, nil
	}
	b := rawjson.AppendQuote([]byte(`{"`+member+`":`), e.Target)
	if e.Arguments != nil {
		c.args = e.Arguments.Full
		b = append(append(b, `,"arguments":`...), c.args...)
	}
	b = append(b, '}')
	c.Params = b
	return c, nil
}

// sendAgain sends a request to its server, through the host with its policy and log.
func sendAgain(ctx context.Context, f *cmdutil.Factory, c *recordedCall) error {
	hosted, h, err := hosting.OpenHostTarget(ctx, f, &policy.Caller{Server: c.Server})
	if err != nil {
		return exit.UsageError(err)
	}
	if !slices.ContainsFunc(h.Upstreams(), func(u *host.Upstream) bool { return u.Name() == c.Server }) {
		return exit.NotFoundError(fmt.Errorf("the configuration has no server %q", c.Server))
	}
	o := &cmdutil.Invocation{Factory: f, Target: hosted}
	return o.WithServer(ctx, func(ctx context.Context, client *mcp.Client) error {
		if c.Method == "tools/call" && !f.Flags.JSON {
			arguments := c.args
			if arguments == nil {
				arguments = stdjson.RawMessage("{}")
			}
			res, err := client.CallTool(ctx, c.name, arguments)
			if err != nil {
				return err
			}
			return cmdutil.ShowResult(f, res)
		}
		if c.Result, err = client.Do(ctx, c.Method, c.Params); err != nil {
			return err
		}
		if c.Sent = true; f.Flags.JSON {
			f.IO.Out.Value(c)
			return nil
		}
		f.IO.Out.Raw(c.Result)
		return nil
	})
}
