package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/pins"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configedit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// An inspection holds the definitions that a new server offers to the local user. Its host compares
// and records definitions as a gateway does, in a separate state. It must use the whole
// configuration, on which the identity of the server depends.
type inspection struct {
	config *hosting.Config // as it is with the new entry
	used   bool            // a gateway with this configuration uses the server
	found  *state.Memory
	pins   []*pin.Pin
}

// An addedPin is a definition that was recorded, in JSON.
type addedPin struct {
	Kind   pin.Kind `json:"kind"`
	Name   string   `json:"name"`
	Status string   `json:"status"` // as `patchbay gateway pins` prints it
	Digest string   `json:"digest"` // SHA-256 of the listed form
}

// inspectServer connects to the new server. If the server requires a login, the user logs in first,
// as with other commands.
func inspectServer(ctx context.Context, p *cmdutil.Factory, a *AddOptions, e *configedit.Edit,
	f *configs.File) (*inspection, error) {
	i, err := newInspection(p, a, e, f)
	if err != nil {
		return nil, err
	}
	s, err := f.Server(a.Name)
	if err == nil && s.Type != config.TypeStdio && !strings.Contains(s.URL, "${") {
		err = target.CheckServerURL(s.URL)
	}
	var lookup func(name string) (string, bool)
	if err == nil {
		lookup, err = p.Config.Variables(ctx, f, s) // asks for each input once
	}
	if err == nil {
		_, err = p.Client.ClientOptions(ctx) // checks the flags
	}
	if err == nil {
		err = p.Client.OpenTrace()
	}
	if err != nil {
		return nil, exit.UsageError(err)
	}
	err = readServer(ctx, p, i, f, s, lookup)
	t := p.Client.Current.Load()
	if t != nil && t.URL != "" {
		t.Name, t.From = a.URL, "" // the login command must use the URL: no file contains the name yet
	}
	if t == nil || t.URL == "" || t.Auth == nil || !p.IO.MayPrompt() || exit.Code(ctx, err) != exit.Auth {
		return i, err
	}
	t.Auth, t.NoLogin = nil, false
	p.Client.NoQuestions = true // an inspection sends no calls
	o := &cmdutil.Invocation{Factory: p, Target: t}
	err = o.WithServer(ctx, func(ctx context.Context, c *mcp.Client) error {
		_, err := cmdutil.Collect(c.Tools(ctx)) // may need more scopes
		return err
	})
	if err != nil {
		return nil, err
	}
	i.found = &state.Memory{}
	return i, readServer(ctx, p, i, f, s, lookup)
}

// newInspection returns an inspection with the configuration that contains the new entry.
func newInspection(p *cmdutil.Factory, a *AddOptions, e *configedit.Edit, f *configs.File) (*inspection, error) {
	c, _, err := hosting.MergedConfig(p, configs.FilesWith(p.Flags.Config, e.Path, e.Text), "")
	if err != nil {
		return nil, err
	}
	i := &inspection{config: c, found: &state.Memory{}}
	for _, entry := range c.Servers {
		i.used = i.used || entry.Name == a.Name && entry.File.Path == e.Path
	}
	if !i.used { // it is the gateway itself, or in a project file that is not trusted
		c.File = config.Merge(nil, []config.Entry{{Name: a.Name, File: f.File, Server: a.Name}})
	}
	return i, nil
}

// readServer reads all lists of a server over a single connection.
func readServer(ctx context.Context, p *cmdutil.Factory, i *inspection, f *configs.File, s *config.Server,
	lookup func(name string) (string, bool)) error {
	opts := &host.Options{
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			t := target.ExpandedTarget(s, f.Path)
			t.Name, t.NoLogin = s.Name, true
			if t.URL != "" {
				if err := target.CheckServerURL(t.URL); err != nil {
					return nil, exit.UsageError(err)
				}
			}
			p.Client.ShowStart(t)
			p.IO.Err.Status("connecting to " + term.CleanLine(p.Client.Begin(t)) + " …")
			if err := p.Login.Authorize(ctx, t); err != nil {
				return nil, err
			}
			t.Contacted = true
			return p.Client.Transport(t), nil
		},
		Client: mcp.ClientOptions{Info: mcp.Implementation{Name: "patchbay", Version: build.Version()},
			Revision: p.Flags.Revision},
		Lookup: lookup, State: i.found, Pins: true, Logger: p.IO.Logger(),
	}
	h, err := host.Open(ctx, i.config.File, opts)
	if err != nil {
		return exit.UsageError(fmt.Errorf("%s: %w; nothing was changed", f.Path, err))
	}
	defer func() { _ = h.Close() }() // the lists were read
	defer p.IO.Err.Done()
	command := &target.Target{Command: []string{s.Command}}
	err = connect.Within(ctx, p.Client.StartLimit(command), func(ctx context.Context) error {
		return h.Start(ctx, s.Name)
	},
		func(error) error {
			if t := p.Client.Current.Load(); t != nil && t.Command != nil {
				return p.Client.NoAnswer(t)
			}
			return p.Client.NoAnswer(command)
		})
	if err != nil {
		return inspectionError(ctx, p, f, err)
	}
	p.IO.Err.Status("reading its lists …")
	err = connect.Within(ctx, p.Flags.Timeout, func(ctx context.Context) error {
		i.pins, err = h.Operator().Inspect(ctx, s.Name)
		return err
	}, func(error) error {
		return fmt.Errorf("the server has not listed all that it has within %v (--timeout)", p.Flags.Timeout)
	})
	if failed, ok := errors.AsType[*hosterr.Error](err); ok {
		return failed.Err
	}
	return err
}

// inspectionError returns the error of a command for that of a host that could not connect.
func inspectionError(ctx context.Context, p *cmdutil.Factory, f *configs.File, err error) error {
	failed, ok := errors.AsType[*hosterr.Error](err)
	t := p.Client.Current.Load()
	switch {
	case !ok && t == nil:
		return err
	case !ok:
		return p.Client.ConnectError(ctx, t, err)
	case failed.Code == hosterr.CodeConfigError || t == nil:
		return exit.UsageError(fmt.Errorf("%s: server %.64q: %w", f.Path, failed.Server, failed.Err))
	}
	return p.Client.ConnectError(ctx, t, &mcp.TransportError{Method: driver.MethodInitialize, Err: failed.Err})
}

// shownForm returns the form of a definition that the server listed.
func shownForm(pinned *pin.Pin) pin.Definition {
	return slices.Concat(pinned.Approved, pinned.Pending)[0]
}

// showInspection prints the definitions that are about to be approved.
func showInspection(f *cmdutil.Factory, i *inspection, r *AddReport) {
	r.Tools = []string{}
	var tools [][]string
	others := map[pin.Kind][][]string{}
	for _, pinned := range i.pins {
		d := shownForm(pinned)
		row := []string{term.Shorten(term.CleanLine(pinned.Name), term.MaxNameShown), firstLine(d.JSON)}
		switch {
		case pinned.Kind == pin.Tool:
			r.Tools = append(r.Tools, pinned.Name)
			tools = append(tools, row)
		case pinned.Kind != pin.Server:
			others[pinned.Kind] = append(others[pinned.Kind], row)
		}
	}
	if f.Flags.JSON {
		return
	}
	if tools == nil {
		f.IO.Err.Printf("The server has no tools.")
	} else {
		f.IO.Err.Printf("Tools:")
		f.IO.Out.Columns("NAME DESCRIPTION", tools)
	}
	for _, list := range []struct {
		kind  pin.Kind
		title string
	}{{pin.Prompt, "Prompts:"}, {pin.Resource, "Resources:"}, {pin.Template, "Resource templates:"}} {
		rows := others[list.kind]
		const most = 20 // a server may list thousands of resources
		if len(rows) > 0 {
			f.IO.Err.Printf("%s", list.title)
			f.IO.Out.Columns("NAME DESCRIPTION", rows[:min(len(rows), most)])
		}
		if len(rows) > most {
			f.IO.Err.Printf("  and %d others", len(rows)-most)
		}
	}
	showInstructions(f, i.pins)
}

// firstLine returns the first line of the description of a definition.
func firstLine(definition json.RawMessage) string {
	const longest = 100
	var d struct{ Description string }
	_ = json.Unmarshal(definition, &d) // a definition that is too large is nil
	first, _, _ := strings.Cut(strings.TrimSpace(d.Description), "\n")
	return term.Shorten(term.CleanLine(first), longest)
}

// showInstructions prints the part of the instructions that clients of a gateway get.
func showInstructions(f *cmdutil.Factory, pins []*pin.Pin) {
	for _, pinned := range pins {
		var text string
		if pinned.Kind != pin.Server || json.Unmarshal(shownForm(pinned).JSON, &text) != nil {
			continue // serverInfo is an object
		}
		const most = 2 << 10
		cut := strings.ToValidUTF8(text[:min(len(text), most)], "")
		f.IO.Err.Printf("Instructions for models:")
		f.IO.Out.Printf("%s", term.Indent(term.Clean(strings.TrimSpace(cut)), "  "))
	}
}

// changedPins returns the definitions that differ from all approved forms in a state, with the
// listed form as pending. fresh contains the definitions that are not approved in the state,
// including new definitions.
func (i *inspection) changedPins(ctx context.Context, state state.Store) (changed, fresh []*pin.Pin, err error) {
	all, err := pin.List(ctx, state)
	if err != nil {
		return nil, nil, err
	}
	before := pinsByKey(all)
	for _, pinned := range i.pins {
		now := &pin.Pin{Server: pinned.Server, Identity: pinned.Identity, Kind: pinned.Kind, Name: pinned.Name,
			Pending: []pin.Definition{shownForm(pinned)}}
		if old := before[keyOfPin(pinned)]; old != nil {
			now.Approved = old.Approved
		}
		has := func(d pin.Definition) bool { return d.Digest == now.Pending[0].Digest }
		switch {
		case slices.ContainsFunc(now.Approved, has):
			continue
		case len(now.Approved) > 0:
			changed = append(changed, now)
		}
		fresh = append(fresh, now)
	}
	return changed, fresh, nil
}

// A pinKey identifies a definition.
type pinKey struct {
	identity string
	kind     pin.Kind
	name     string
}

func keyOfPin(pinned *pin.Pin) pinKey { return pinKey{pinned.Identity, pinned.Kind, pinned.Name} }

// pinsByKey returns pins by the definitions that they are of.
func pinsByKey(pins []*pin.Pin) map[pinKey]*pin.Pin {
	all := map[pinKey]*pin.Pin{}
	for _, pinned := range pins {
		all[keyOfPin(pinned)] = pinned
	}
	return all
}

// recordInspection records the definitions that were shown. It must run before the file is changed:
// a running gateway connects as soon as it reads the new entry, and would approve other
// definitions. undo removes the records.
func recordInspection(
	ctx context.Context, f *cmdutil.Factory, i *inspection, r *AddReport,
) (fresh []*pin.Pin, undo func() error, err error) {
	state, err := hosting.GatewayState(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	changed, fresh, err := i.changedPins(ctx, state)
	if err != nil {
		return nil, nil, err
	}
	if len(changed) > 0 && !f.Flags.JSON {
		f.IO.Err.Printf("Different from the approved definitions:")
		pins.ShowPins(f, changed)
	}
	pins, restore, err := pin.Copy(ctx, state, i.found)
	if err != nil {
		return nil, nil, fmt.Errorf("record the definitions: %w; nothing was changed", err)
	}
	recorded := pinsByKey(pins)
	for _, pinned := range i.pins {
		r.Pins = append(r.Pins, addedPin{pinned.Kind, pinned.Name, recorded[keyOfPin(pinned)].Status(),
			shownForm(pinned).Digest})
	}
	fresh = slices.DeleteFunc(fresh, func(pinned *pin.Pin) bool { return len(recorded[keyOfPin(pinned)].Pending) > 0 })
	return fresh, func() error { return restore(context.WithoutCancel(ctx)) }, nil
}

// showRecorded prints how many definitions were approved, and how many wait for a review.
func showRecorded(f *cmdutil.Factory, a *AddOptions, r *AddReport) {
	waiting := 0
	for _, pinned := range r.Pins {
		if pinned.Status != "approved" {
			waiting++
		}
	}
	if n := len(r.Pins) - waiting; n > 0 {
		f.IO.Err.Printf("Approved: %s, as the server has them now. A gateway uses no other forms of them.",
			term.Counted(n, "definition"))
	}
	if waiting > 0 {
		f.IO.Err.Printf("Quarantined: %s, as the settings of the server want a review. Compare with \"patchbay "+
			"gateway pins --diff %s\", approve with \"patchbay gateway approve --pins %[2]s\".",
			term.Counted(waiting, "definition"), a.Name)
	}
}
