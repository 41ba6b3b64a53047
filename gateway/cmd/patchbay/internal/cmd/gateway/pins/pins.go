// Package pins lists and approves the definitions of servers.
package pins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// Options are the flags of "gateway pins". The Words are names of servers and definitions.
type Options struct {
	cmdutil.Invocation
	Diff, All bool
}

// NewCmdPins returns the command "gateway pins", which needs no running gateway.
func NewCmdPins(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.Command(f, "pins [NAME…]", "List approved and quarantined definitions of tools (pinning, rug pull)",
		nil, o, cmdutil.Or(run, list))
	cmd.ValidArgsFunction = CompletePins(f, false)
	cmd.Flags().BoolVar(&o.Diff, "diff", false, "show how quarantined and approved definitions differ")
	cmd.Flags().BoolVar(&o.All, "all", false, "list every approved definition too, not only their number")
	return cmd
}

func list(ctx context.Context, o *Options) error {
	_, pins, err := NamedPins(ctx, o.Factory, o.Words)
	if err != nil {
		return err
	}
	if o.Diff && !o.All && len(o.Words) == 0 {
		pins = QuarantinedPins(pins)
	}
	if o.PrintedJSON(map[string][]PinReport{"pins": pinReports(pins, o.Diff)}) {
		return nil
	}
	printPins(o.Factory, pins, o.Diff, o.All || len(o.Words) > 0)
	return nil
}

// ApprovePins shows the quarantined definitions of a server or a name, and then approves them.
func ApprovePins(ctx context.Context, f *cmdutil.Factory, names []string, yes bool) error {
	state, pins, err := NamedPins(ctx, f, names)
	if err != nil {
		return err
	}
	if pins = QuarantinedPins(pins); len(pins) == 0 {
		return &exit.Error{Code: exit.NotFound,
			Err: fmt.Errorf("nothing of %s waits for approval; see \"patchbay gateway pins\"",
				term.CleanLine(strings.Join(names, ", ")))}
	}
	if !f.Flags.JSON {
		ShowPins(f, pins)
	}
	if !yes {
		if !f.IO.MayPrompt() {
			return exit.UsageError(errors.New(
				"approval needs a terminal, or --yes after \"patchbay gateway pins --diff\""))
		}
		approved, err := f.Ask.Confirm(ctx, "Approve these definitions?", "n")
		if err != nil && !errors.Is(err, question.ErrDeclined) && !errors.Is(err, question.ErrCancelled) {
			return err
		}
		if !approved {
			return &exit.Error{Code: exit.Failure, Err: errors.New("nothing was approved")}
		}
	}
	if err := pin.Approve(ctx, state, pins...); err != nil {
		return err
	}
	if c, _, err := hosting.ReadConfig(f, ""); err == nil {
		RecordApproved(ctx, f, c.File, pins)
	}
	if f.PrintedJSON(map[string][]PinReport{"approved": pinReports(pins, false)}) {
		return nil
	}
	f.IO.Err.Printf("Approved: %s. A running gateway uses them within 2 seconds.", term.Counted(len(pins),
		"definition"))
	return nil
}

// RecordApproved records each form of a definition that was pending and is approved now.
func RecordApproved(ctx context.Context, p *cmdutil.Factory, f *config.File, pins []*pin.Pin) {
	var details []map[string]any
	for _, pinned := range pins {
		for _, d := range pinned.Pending {
			details = append(details, map[string]any{"action": "approve definition", "server": pinned.Server,
				"kind": pinned.Kind, "name": pinned.Name, "digest": d.Digest})
		}
	}
	hosting.RecordAdmin(ctx, p, f, details...)
}

// NamedPins returns the pins of all servers, or the pins of names: a server, or SERVER/NAME with
// the name that the server uses, or the public name SERVER__NAME.
func NamedPins(ctx context.Context, f *cmdutil.Factory, names []string) (state.Store, []*pin.Pin, error) {
	state, err := hosting.GatewayState(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	all, err := pin.List(ctx, state)
	if err != nil || len(names) == 0 {
		return state, all, err
	}
	var found []*pin.Pin
	for _, name := range names {
		matches := slices.DeleteFunc(slices.Clone(all), func(pinned *pin.Pin) bool {
			return name != pinned.Server && name != pinName(pinned) && name != pinned.Server+"__"+pinned.Name
		})
		if len(matches) == 0 {
			return nil, nil, &exit.Error{Code: exit.NotFound, Err: term.UnknownName("server or definition", name,
				pinNames(all, name))}
		}
		for _, pinned := range matches {
			if !slices.Contains(found, pinned) {
				found = append(found, pinned)
			}
		}
	}
	return state, found, nil
}

func pinName(pinned *pin.Pin) string { return pinned.Server + "/" + pinned.Name }

// QuarantinedPins returns the pins whose definitions wait for approval.
func QuarantinedPins(pins []*pin.Pin) []*pin.Pin {
	return slices.DeleteFunc(slices.Clone(pins), func(pinned *pin.Pin) bool { return len(pinned.Pending) == 0 })
}

// A PinReport is a pin in JSON.
type PinReport struct {
	Server   string             `json:"server"`
	Kind     pin.Kind           `json:"kind"`
	Name     string             `json:"name"`
	Status   string             `json:"status"`
	Approved []definitionReport `json:"approved"`
	Pending  []definitionReport `json:"pending"`
	Diff     []string           `json:"diff,omitempty"`
}

type definitionReport struct {
	Digest     string          `json:"digest"`
	Time       time.Time       `json:"time"`
	Definition json.RawMessage `json:"definition,omitempty"`
}

func pinReports(pins []*pin.Pin, diff bool) []PinReport {
	reports := []PinReport{}
	definitions := func(all []pin.Definition) []definitionReport {
		list := []definitionReport{}
		for _, d := range all {
			list = append(list, definitionReport{d.Digest, d.Time, d.JSON})
		}
		return list
	}
	for _, pinned := range pins {
		r := PinReport{Server: pinned.Server, Kind: pinned.Kind, Name: pinned.Name, Status: pinned.Status(),
			Approved: definitions(pinned.Approved), Pending: definitions(pinned.Pending)}
		if diff {
			r.Diff = pinned.Diff()
		}
		reports = append(reports, r)
	}
	return reports
}

// printPins prints the quarantined definitions, and the approved definitions or their number.
func printPins(f *cmdutil.Factory, pins []*pin.Pin, diff, approved bool) {
	if diff {
		ShowPins(f, pins)
		return
	}
	var rows [][]string
	count := map[string]int{}
	var servers []string
	for _, pinned := range pins {
		if len(pinned.Pending) == 0 && !approved {
			if count[pinned.Server]++; count[pinned.Server] == 1 {
				servers = append(servers, pinned.Server)
			}
			continue
		}
		newest := slices.Concat(pinned.Pending, pinned.Approved)[0]
		rows = append(rows, []string{term.Shorten(term.CleanLine(pinName(pinned)), term.MaxNameShown),
			string(pinned.Kind), pinned.Status(),
			newest.Digest[:min(12, len(newest.Digest))], newest.Time.Local().Format(time.DateTime)})
	}
	for _, server := range servers {
		rows = append(rows, []string{term.Shorten(term.CleanLine(server), term.MaxNameShown), "approved definitions",
			fmt.Sprint(count[server])})
	}
	f.IO.Out.Columns("NAME KIND STATUS DIGEST RECORDED", rows)
	switch waiting := len(QuarantinedPins(pins)); {
	case len(pins) == 0:
		f.IO.Err.Printf("No gateway has recorded definitions yet.")
	case waiting > 0:
		f.IO.Err.Printf("Quarantined: %s. Compare with \"patchbay gateway pins --diff\", approve with "+
			"\"patchbay gateway approve --pins NAME\".", term.Counted(waiting, "definition"))
	}
}

// maxDiffShown limits the lines of a definition on a screen.
const maxDiffShown = 200

// ShowPins prints definitions with their differences.
func ShowPins(f *cmdutil.Factory, pins []*pin.Pin) {
	for _, pinned := range pins {
		f.IO.Out.Printf("%s (%s, %s)", term.Shorten(term.CleanLine(pinName(pinned)), term.MaxNameShown), pinned.Kind,
			pinned.Status())
		lines := pinned.Diff()
		for _, line := range lines[:min(len(lines), maxDiffShown)] {
			f.IO.Out.Printf("  %s", term.CleanLine(line))
		}
		if len(lines) > maxDiffShown {
			f.IO.Out.Printf("  ! %d more lines: see them with --json", len(lines)-maxDiffShown)
		}
	}
}

// pinNames returns names that commands accept for pins: servers, and definitions like typed.
func pinNames(pins []*pin.Pin, typed string) []string {
	var servers, definitions []string
	for _, pinned := range pins {
		servers = append(servers, pinned.Server)
		if jsonschema.Nearest(typed, []string{pinName(pinned)}) != "" {
			definitions = append(definitions, pinName(pinned))
		}
	}
	slices.Sort(servers)
	return append(slices.Compact(servers), definitions...)
}

// CompletePins completes names of pins.
func CompletePins(f *cmdutil.Factory, quarantined bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		_, pins, err := NamedPins(cmd.Context(), f, nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, pinned := range pins {
			if quarantined && len(pinned.Pending) == 0 {
				continue
			}
			for _, name := range []string{term.CleanLine(pinned.Server), term.CleanLine(pinName(pinned))} {
				if strings.HasPrefix(name, typed) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
