package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// An inspection is what a new server offers to the local user. The host of an inspection compares and
// records definitions as a gateway does, in a state of its own, and with the whole configuration, on which
// the identity of the server depends.
type inspection struct {
	config *hostConfig // as it is with the new entry
	used   bool        // a gateway with this configuration uses the server
	found  *state.Memory
	pins   []*pin.Pin
}

// An addedPin is a definition that was recorded, in JSON.
type addedPin struct {
	Kind   pin.Kind `json:"kind"`
	Name   string   `json:"name"`
	Status string   `json:"status"` // as `patchbay gateway pins` has it
	Digest string   `json:"digest"` // SHA-256, of the form that the server has listed
}

// inspectServer connects to the new server. A user who has to log in first does so as with other commands.
func inspectServer(ctx context.Context, p *factory, a *addition, e *fileEdit, f *configs.File) (*inspection, error) {
	i, err := newInspection(p, a, e, f)
	if err != nil {
		return nil, err
	}
	s, err := f.Server(a.name)
	if err == nil && s.Type != config.TypeStdio && !strings.Contains(s.URL, "${") {
		err = checkServerURL(s.URL)
	}
	var lookup func(name string) (string, bool)
	if err == nil {
		lookup, err = p.Config.variables(ctx, f, s) // asks for each input once
	}
	if err == nil {
		_, err = p.Client.clientOptions(ctx) // checks the flags
	}
	if err == nil {
		err = p.Client.openTrace()
	}
	if err != nil {
		return nil, usage(err)
	}
	err = readServer(ctx, p, i, f, s, lookup)
	t := p.Client.current.Load()
	if t != nil && t.url != "" {
		t.name, t.from = a.url, "" // the login command must use the URL: no file contains the name yet
	}
	if t == nil || t.url == "" || t.auth == nil || !p.IO.mayPrompt() || exitCode(ctx, err) != exitAuth {
		return i, err
	}
	t.auth, t.noLogin = nil, false
	p.Client.noQuestions = true // nothing is called
	err = withServer(ctx, p, t, nil, func(ctx context.Context, c *mcp.Client, _ []string) error {
		_, err := collect(c.Tools(ctx)) // may need more scopes
		return err
	})
	if err != nil {
		return nil, err
	}
	i.found = &state.Memory{}
	return i, readServer(ctx, p, i, f, s, lookup)
}

// newInspection returns an inspection with the configuration that a gateway will have.
func newInspection(p *factory, a *addition, e *fileEdit, f *configs.File) (*inspection, error) {
	c, _, err := mergedConfig(p, configs.FilesWith(p.Flags.config, e.path, e.text), "")
	if err != nil {
		return nil, err
	}
	i := &inspection{config: c, found: &state.Memory{}}
	for _, entry := range c.servers {
		i.used = i.used || entry.Name == a.name && entry.File.Path == e.path
	}
	if !i.used { // it is the gateway itself, or in a project file that is not trusted
		c.file = config.Merge(nil, []config.Entry{{Name: a.name, File: f.File, Server: a.name}})
	}
	return i, nil
}

// readServer reads all that a server offers, over one connection.
func readServer(ctx context.Context, p *factory, i *inspection, f *configs.File, s *config.Server,
	lookup func(name string) (string, bool)) error {
	opts := &host.Options{
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			t := expandedTarget(s, f.Path)
			t.name, t.noLogin = s.Name, true
			if t.url != "" {
				if err := checkServerURL(t.url); err != nil {
					return nil, usage(err)
				}
			}
			p.Client.showStart(t)
			p.IO.Err.status("connecting to " + cleanLine(p.Client.begin(t)) + " …")
			if err := p.Login.authorize(ctx, t); err != nil {
				return nil, err
			}
			t.contacted = true
			return p.Client.transport(t), nil
		},
		Client: mcp.ClientOptions{Info: mcp.Implementation{Name: "patchbay", Version: version()},
			Revision: p.Flags.revision},
		Lookup: lookup, State: i.found, Pins: true, Logger: p.IO.logger(),
	}
	h, err := host.Open(ctx, i.config.file, opts)
	if err != nil {
		return usage(fmt.Errorf("%s: %w; nothing was changed", f.Path, err))
	}
	defer func() { _ = h.Close() }() // what the server offers is known
	defer p.IO.Err.done()
	command := &target{command: []string{s.Command}}
	err = within(ctx, p.Client.startLimit(command), func(ctx context.Context) error { return h.Start(ctx, s.Name) },
		func(error) error {
			if t := p.Client.current.Load(); t != nil && t.command != nil {
				return p.Client.noAnswer(t)
			}
			return p.Client.noAnswer(command)
		})
	if err != nil {
		return inspectionError(ctx, p, f, err)
	}
	p.IO.Err.status("reading its lists …")
	err = within(ctx, p.Flags.timeout, func(ctx context.Context) error {
		i.pins, err = h.Inspect(ctx, s.Name)
		return err
	}, func(error) error {
		return fmt.Errorf("the server has not listed all that it has within %v (--timeout)", p.Flags.timeout)
	})
	if failed, ok := errors.AsType[*host.Error](err); ok {
		return failed.Err
	}
	return err
}

// inspectionError returns the error of a command for that of a host that could not connect.
func inspectionError(ctx context.Context, p *factory, f *configs.File, err error) error {
	failed, ok := errors.AsType[*host.Error](err)
	t := p.Client.current.Load()
	switch {
	case !ok && t == nil:
		return err
	case !ok:
		return p.Client.connectError(ctx, t, err)
	case failed.Code == host.CodeConfigError || t == nil:
		return usage(fmt.Errorf("%s: server %.64q: %w", f.Path, failed.Server, failed.Err))
	}
	return p.Client.connectError(ctx, t, &mcp.TransportError{Method: driver.MethodInitialize, Err: failed.Err})
}

// shownForm returns the form of a definition that the server has listed.
func shownForm(pinned *pin.Pin) pin.Definition {
	return slices.Concat(pinned.Approved, pinned.Pending)[0]
}

// showInspection prints what the server offers: what is about to be approved.
func showInspection(f *factory, i *inspection, r *addReport) {
	r.Tools = []string{}
	var tools [][]string
	others := map[pin.Kind][][]string{}
	for _, pinned := range i.pins {
		d := shownForm(pinned)
		row := []string{shorten(cleanLine(pinned.Name), maxNameShown), firstLine(d.JSON)}
		switch {
		case pinned.Kind == pin.Tool:
			r.Tools = append(r.Tools, pinned.Name)
			tools = append(tools, row)
		case pinned.Kind != pin.Server:
			others[pinned.Kind] = append(others[pinned.Kind], row)
		}
	}
	if f.Flags.json {
		return
	}
	if tools == nil {
		f.IO.Err.printf("The server has no tools.")
	} else {
		f.IO.Err.printf("Tools:")
		f.IO.Out.columns("NAME DESCRIPTION", tools)
	}
	for _, list := range []struct {
		kind  pin.Kind
		title string
	}{{pin.Prompt, "Prompts:"}, {pin.Resource, "Resources:"}, {pin.Template, "Resource templates:"}} {
		rows := others[list.kind]
		const most = 20 // a server may have thousands of resources
		if len(rows) > 0 {
			f.IO.Err.printf("%s", list.title)
			f.IO.Out.columns("NAME DESCRIPTION", rows[:min(len(rows), most)])
		}
		if len(rows) > most {
			f.IO.Err.printf("  and %d others", len(rows)-most)
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
	return shorten(cleanLine(first), longest)
}

// showInstructions prints the part of the instructions that clients of a gateway get.
func showInstructions(f *factory, pins []*pin.Pin) {
	for _, pinned := range pins {
		var text string
		if pinned.Kind != pin.Server || json.Unmarshal(shownForm(pinned).JSON, &text) != nil {
			continue // serverInfo is an object
		}
		const most = 2 << 10
		cut := strings.ToValidUTF8(text[:min(len(text), most)], "")
		f.IO.Err.printf("Instructions for models:")
		f.IO.Out.printf("%s", indent(clean(strings.TrimSpace(cut)), "  "))
	}
}

// changedPins returns the definitions that differ from all approved forms in a state, with the listed form
// as the one that waits. Its second result has those that are not approved in the state, also new ones.
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

// recordInspection records the definitions that were shown, before the file is changed: a running gateway
// connects as soon as it reads the new entry, and would approve what it finds. undo removes them again.
func recordInspection(
	ctx context.Context, f *factory, i *inspection, r *addReport,
) (fresh []*pin.Pin, undo func() error, err error) {
	state, err := gatewayState()
	if err != nil {
		return nil, nil, err
	}
	changed, fresh, err := i.changedPins(ctx, state)
	if err != nil {
		return nil, nil, err
	}
	if len(changed) > 0 && !f.Flags.json {
		f.IO.Err.printf("Different from what was approved before:")
		showPins(f, changed)
	}
	pins, restore, err := pin.Copy(ctx, state, i.found)
	if err != nil {
		return nil, nil, fmt.Errorf("record the definitions: %w; nothing was changed", err)
	}
	recorded := pinsByKey(pins)
	for _, pinned := range i.pins {
		r.Pins = append(r.Pins, addedPin{pinned.Kind, pinned.Name, recorded[keyOfPin(pinned)].Status(), shownForm(pinned).Digest})
	}
	fresh = slices.DeleteFunc(fresh, func(pinned *pin.Pin) bool { return len(recorded[keyOfPin(pinned)].Pending) > 0 })
	return fresh, func() error { return restore(context.WithoutCancel(ctx)) }, nil
}

// showRecorded prints what was recorded.
func showRecorded(f *factory, a *addition, r *addReport) {
	waiting := 0
	for _, pinned := range r.Pins {
		if pinned.Status != "approved" {
			waiting++
		}
	}
	if n := len(r.Pins) - waiting; n > 0 {
		f.IO.Err.printf("Approved: %s, as the server has them now. A gateway uses no other forms of them.",
			counted(n, "definition"))
	}
	if waiting > 0 {
		f.IO.Err.printf("Quarantined: %s, as the settings of the server want a review. Compare with \"patchbay "+
			"gateway pins --diff %s\", approve with \"patchbay gateway approve --pins %[2]s\".",
			counted(waiting, "definition"), a.name)
	}
}
