// Package probe reports the features that a server supports.
package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Report is the output of `patchbay probe --json`.
type Report struct {
	Target       string                 `json:"target"`
	Server       mcp.Implementation     `json:"server"`
	Revision     string                 `json:"revision"`              // negotiated
	Versions     []string               `json:"versions"`              // supported, as the server reports
	Eras         []string               `json:"eras,omitzero"`         // modern, session
	Revisions    []attempt              `json:"revisions,omitzero"`    // newest first
	Capabilities mcp.ServerCapabilities `json:"capabilities"`          //
	Instructions string                 `json:"instructions,omitzero"` //
	ConnectMs    float64                `json:"connectMs"`             // including negotiation
	PingMs       *float64               `json:"pingMs,omitzero"`       //
	Cards        []card                 `json:"cards,omitzero"`        // claims, which nobody has verified
	CardProblem  string                 `json:"cardProblem,omitzero"`  // why other cards could not be read
}

// An attempt is the result of connecting in a revision.
type attempt struct {
	Revision string  `json:"revision"`
	Spoken   bool    `json:"spoken"`
	Ms       float64 `json:"ms"`
	Error    string  `json:"error,omitzero"` // if the server does not speak it, or that is unknown
}

// Options are the flags of "probe".
type Options struct {
	cmdutil.Invocation
	Quick bool // do not try other revisions
}

// NewCmdProbe returns the command "probe".
func NewCmdProbe(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.TargetCommand(f, "probe", "Show a server's name, capabilities and protocol revisions", nil, o,
		cmdutil.Or(run, probe))
	cmd.Flags().BoolVar(&o.Quick, "quick", false, "connect once, and try no other revisions and no server cards")
	return cmd
}

func probe(ctx context.Context, o *Options) error {
	var r *Report
	err := o.Client.Bounded(ctx, o.Target, "probe", func(ctx context.Context) (err error) {
		if r, err = connectOnce(ctx, o.Factory, o.Target); err == nil && !o.Quick {
			err = TryAll(ctx, o.Factory, o.Target, r)
		}
		if err == nil && !o.Quick {
			readCards(ctx, o.Factory, o.Target, r)
		}
		return err
	})
	if err == nil {
		showReport(o.Factory, r)
	}
	return err
}

// connectOnce connects as every command does.
func connectOnce(ctx context.Context, f *cmdutil.Factory, t *target.Target) (*Report, error) {
	began := time.Now()
	c, err := f.Client.Connect(ctx, t)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Target: t.String(), Server: c.ServerInfo(), Revision: c.Revision(), Versions: c.SupportedRevisions(),
		Capabilities: c.Capabilities(), Instructions: c.Instructions(), ConnectMs: term.Milliseconds(time.Since(began)),
	}
	began = time.Now()
	if c.Ping(ctx) == nil {
		took := term.Milliseconds(time.Since(began))
		r.PingMs = &took
	}
	f.Client.Close(c)
	return r, nil
}

// TryAll connects once in each other revision, concurrently: commands may start and exit slowly.
func TryAll(ctx context.Context, f *cmdutil.Factory, t *target.Target, r *Report) error {
	opts, err := f.Client.ClientOptions(ctx)
	if err != nil {
		return exit.UsageError(err)
	}
	all := connect.Revisions()
	r.Revisions = make([]attempt, len(all))
	var tries sync.WaitGroup
	for i, revision := range all {
		if revision == r.Revision {
			r.Revisions[i] = attempt{Revision: revision, Spoken: true, Ms: r.ConnectMs}
			continue
		}
		pinned := *opts
		pinned.Revision = revision
		tries.Go(func() { r.Revisions[i] = try(ctx, f, t, &pinned) })
	}
	tries.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, connect.ErrTimeLimit) { // attempts contain that error
		return err
	}
	r.Eras = []string{}
	for _, a := range r.Revisions {
		era := "modern"
		if driver.HasSessions(a.Revision) {
			era = "session"
		}
		if a.Spoken && (len(r.Eras) == 0 || r.Eras[len(r.Eras)-1] != era) {
			r.Eras = append(r.Eras, era)
		}
	}
	return nil
}

func try(ctx context.Context, f *cmdutil.Factory, t *target.Target, opts *mcp.ClientOptions) attempt {
	began := time.Now()
	c, err := mcp.Connect(ctx, f.Client.Transport(t), opts)
	a := attempt{Revision: opts.Revision, Spoken: err == nil, Ms: term.Milliseconds(time.Since(began))}
	switch {
	case err == nil:
		f.Client.Close(c)
	case !errors.Is(err, mcp.ErrNoCommonRevision) || errors.Is(err, mcp.ErrTimeout): // after a timeout it is unknown
		a.Error = exit.Text(exit.Failure, err)
	}
	return a
}

func showReport(f *cmdutil.Factory, r *Report) {
	if f.Flags.JSON {
		f.IO.Out.Value(r)
		return
	}
	name := r.Server.Name + " " + r.Server.Version
	if r.Server.Title != "" {
		name += " (" + r.Server.Title + ")"
	}
	revision := r.Revision
	if len(r.Versions) > 1 { // the handshake of older revisions names a single version
		revision += " (supported: " + strings.Join(r.Versions, ", ") + ")"
	}
	line := func(name, value string) { f.IO.Out.Field(11, name, value) }
	line("server", name)
	line("target", r.Target)
	line("revision", revision)
	line("eras", strings.Join(r.Eras, " and "))
	line("offers", offers(&r.Capabilities))
	line("connect", fmt.Sprintf("%.1f ms", r.ConnectMs))
	if r.PingMs != nil {
		line("ping", fmt.Sprintf("%.1f ms", *r.PingMs))
	}
	for _, a := range r.Revisions {
		status := "supported"
		if !a.Spoken {
			status = "not supported"
		}
		line := fmt.Sprintf("%s  %-13s  %.1f ms  %s", a.Revision, status, a.Ms, term.CleanLine(a.Error))
		f.IO.Out.Printf("%s", strings.TrimRight(line, " "))
	}
	showCards(f, r)
	if r.Instructions != "" {
		f.IO.Out.Printf("instructions\n%s", term.Indent(term.Clean(r.Instructions), "  "))
	}
}

// offers returns capabilities in words.
func offers(c *mcp.ServerCapabilities) string {
	var all []string
	add := func(offered, changes bool, what string) {
		if offered && changes {
			what += " (with notifications)"
		}
		if offered {
			all = append(all, what)
		}
	}
	add(c.Tools != nil, c.Tools != nil && c.Tools.ListChanged, "tools")
	add(c.Resources != nil, c.Resources != nil && (c.Resources.ListChanged || c.Resources.Subscribe), "resources")
	add(c.Prompts != nil, c.Prompts != nil && c.Prompts.ListChanged, "prompts")
	add(c.Completions != nil, false, "completion")
	add(c.Logging != nil, false, "logging")
	for _, id := range slices.Sorted(maps.Keys(c.Extensions)) {
		all = append(all, term.CleanLine(id))
	}
	if all == nil {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
