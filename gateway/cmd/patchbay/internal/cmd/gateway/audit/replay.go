package audit

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
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

func auditReplayCommand(f *cmdutil.Factory, dir *string) *cobra.Command {
	send := false
	cmd := &cobra.Command{
		Use: "replay ID", Short: "Show the request of a call, and send it again with --send",
		DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := findAudit(f, *dir, args[0])
			if err != nil {
				return err
			}
			c, err := rebuild(found)
			if err != nil {
				return err
			}
			if send {
				return sendAgain(cmd.Context(), f, c)
			}
			if f.Flags.JSON {
				f.IO.Out.Value(c)
				return nil
			}
			f.IO.Out.Printf("%s of server %s", term.CleanLine(c.Method), term.ShellWord(c.Server))
			f.IO.Out.Raw(c.Params)
			f.IO.Err.Printf("Not sent: use --send to send it again.")
			return nil
		},
	}
	cmd.Flags().BoolVar(&send, "send", false, "send the request to the server, as the local user")
	return cmd
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
	known := false
	for _, u := range h.Upstreams() {
		known = known || u.Name() == c.Server
	}
	if !known {
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
